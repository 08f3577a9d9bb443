// The value of a string literal in an expression, as Python's unicode_escape reads it.
#pragma once

#include <expected>
#include <string>
#include <string_view>

namespace quire::runner::jinja {

// `body` is what stands between the quotes. Escapes nobody knows keep their backslash. The error is a
// message.
std::expected<std::string, std::string> UnescapeStringLiteral(std::string_view body);

}  // namespace quire::runner::jinja
