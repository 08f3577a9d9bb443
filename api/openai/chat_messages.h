// "messages" of chats in OpenAI's shape, with the parts and members that others of its shape add.
#pragma once

#include <string>
#include <vector>

#include "api/base/image_use.h"
#include "api/base/request.h"
#include "api/json/fields.h"

namespace quire::api::openai {

// At least one, or an error. `model` is for messages; what was left out is added to `unknown`, for the log.
// `images` are those of the messages, for SettleImages().
std::vector<Message> GetMessages(Fields& body, const std::string& model, ImageUse& images,
                                 std::vector<std::string>& unknown);

}  // namespace quire::api::openai
