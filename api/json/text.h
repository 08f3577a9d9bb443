// Comparing a value with a text.
#pragma once

#include <string_view>

#include "api/json/type.h"

namespace quire::api {

// Whether the value is this string. Not `value == "text"`: the library makes a value of the text there, which allocates, in a
// function that is noexcept, so that a failing allocation would end the program.
bool IsText(const Json& value, std::string_view text);

}  // namespace quire::api
