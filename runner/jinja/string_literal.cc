#include "runner/jinja/string_literal.h"

#include <charconv>
#include <cstdint>
#include <utility>

#include "api/base/utf8.h"

namespace quire::runner::jinja {
namespace {

// The plain one-letter escapes, and what each stands for; a line break stands for nothing.
constexpr std::string_view kEscapes = "ntrbfva\\'\"";
constexpr std::string_view kMeanings = "\n\t\r\b\f\v\a\\'\"";

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
    if (const size_t escape = kEscapes.find(letter); escape != std::string_view::npos) {
      value.push_back(kMeanings[escape]);
      at += 2;
    } else if (letter == '\n') {
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
