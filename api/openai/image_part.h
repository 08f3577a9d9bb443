// Image parts of OpenAI's chats and responses.
#pragma once

#include <optional>
#include <string_view>

#include "api/base/error.h"
#include "api/json/fields.h"
#include "api/json/image_fields.h"

namespace quire::api::openai {

// The image of a part of this type: {"type": "image_url", "image_url": {"url"} or a URL}, {"type":
// "input_image", "image_url": a URL}, or a screenshot of a computer. Nothing: the part is no image.
std::optional<Result<ImageFile>> ImageOf(Fields& part, std::string_view type);

}  // namespace quire::api::openai
