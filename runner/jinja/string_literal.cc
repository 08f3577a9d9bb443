#include "runner/jinja/string_literal.h"

#include <charconv>
#include <cstdint>
#include <utility>

#include "api/base/utf8.h"

namespace quire::runner::jinja {
namespace {

// The plain one-letter escapes.
std::pair<bool, std::string_view> SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return {true, "\n"};
    case 't':
      return {true, "\t"};
    case 'r':
      return {true, "\r"};
    case 'b':
      return {true, "\b"};
    case 'f':
      return {true, "\f"};
    case 'v':
      return {true, "\v"};
    case 'a':
      return {true, "\a"};
    case '\\':
      return {true, "\\"};
    case '\'':
      return {true, "'"};
    case '"':
      return {true, "\""};
    case '\n':
      return {true, ""};
    default:
      return {false, {}};
  }
}

size_t HexDigits(char c) { return c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0; }

// Reads exactly `digits` digits at the front of text.
bool ReadDigits(std::string_view text, size_t digits, int base, uint32_t& value) {
  if (text.size() < digits) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, base);
  return error == std::errc() && end == text.data() + digits;
}

}  // namespace

std::expected<std::string, std::string> UnescapeStringLiteral(std::string_view body) {
  std::string value;
  value.reserve(body.size());
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      value.push_back(body[at++]);
      continue;
    }
    const char letter = body[at + 1];
    if (const auto [known, text] = SimpleEscape(letter); known) {
      value += text;
      at += 2;
    } else if (const size_t digits = HexDigits(letter); digits != 0) {
      uint32_t point = 0;
      if (!ReadDigits(body.substr(at + 2), digits, 16, point) || !api::AppendUtf8(value, point)) {
        return std::unexpected("malformed \\x, \\u or \\U escape in a string");
      }
      at += 2 + digits;
    } else if (letter >= '0' && letter <= '7') {
      size_t end = at + 1;
      while (end < body.size() && end < at + 4 && body[end] >= '0' && body[end] <= '7') ++end;
      uint32_t point = 0;
      ReadDigits(body.substr(at + 1), end - at - 1, 8, point);
      api::AppendUtf8(value, point);
      at = end;
    } else if (letter == 'N') {
      return std::unexpected("\\N{...} escapes in a string are not supported");
    } else {
      value.push_back('\\');
      ++at;
    }
  }
  return value;
}

}  // namespace quire::runner::jinja
