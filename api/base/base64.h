// Base64.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::api {

// Replaces the base64 that begins at byte `from` of the text, and what is before it, by its bytes. Both
// alphabets are read; line breaks and blanks between characters are skipped, and padding may be missing.
// kInvalidArgument says what is wrong, without a field: "is not base64: byte 7 is '*'".
Result<void> DecodeBase64(std::string& text, size_t from = 0);

// With padding, in the usual alphabet.
void AppendBase64(std::string& out, std::string_view bytes);

}  // namespace quire::api
