// Values that are texts.
#pragma once

#include <string>
#include <string_view>

#include "api/json/type.h"

namespace quire::api {

// Whether the value is this string. Not `value == "text"`: the library makes a value of the text there, which
// allocates, in a function that is noexcept, so that a failing allocation would end the program.
bool IsText(const Json& value, std::string_view text);

// Moves the text out of a string of a value that was read for this caller alone (ReadJson), so that a long
// one is in memory once. The value, a variable of its own that is not const, keeps an empty text.
std::string TakeText(const Json& value);

// Adds `more` to the text, which takes its memory where there was nothing before.
void AppendText(std::string& text, std::string more);

}  // namespace quire::api
