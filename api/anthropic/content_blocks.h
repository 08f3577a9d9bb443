// Content blocks of Anthropic's messages: access to lists of them, and the text of those that are text in a
// form of their own.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/json/fields.h"
#include "api/json/image_fields.h"
#include "api/json/type.h"

namespace quire::api::anthropic {

bool OneOf(std::string_view value, std::initializer_list<std::string_view> known);

// Empty after an error.
std::string RequireString(Fields& fields, std::string_view name);

// On a line of its own.
void AppendLine(std::string& text, const std::string& more);

// "content" and "system": a string, or an array of blocks each passed to `visit` with its type.
void ForEachBlock(Fields& fields, std::string_view name, const Json& content,
                  const std::function<void(Fields& block, std::string_view type)>& visit);

// The image of an image block. Its source is base64; one that stands elsewhere is not fetched.
Result<ImageFile> ImageOfBlock(Fields& block);

// What a search result or a document says that is plain text. Nothing for other blocks.
std::optional<std::string> TextOfBlock(Fields& block, std::string_view type);

}  // namespace quire::api::anthropic
