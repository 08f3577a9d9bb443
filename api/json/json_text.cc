#include "api/json/json_text.h"

#include <cstring>

#include "api/base/ascii.h"
#include "api/base/utf8.h"

namespace quire::api {
namespace {

// Bytes up to the next one that is a quote, a backslash, a control character or not ASCII.
size_t PlainPrefix(std::string_view text) {
  constexpr uint64_t kOnes = 0x0101010101010101U, kHighs = 0x8080808080808080U;
  const auto zeros = [](uint64_t word) { return (word - kOnes) & ~word & kHighs; };
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof(word));
    const uint64_t control = (word - kOnes * 0x20) & ~word & kHighs;
    if ((zeros(word ^ kOnes * '"') | zeros(word ^ kOnes * '\\') | control | (word & kHighs)) != 0) break;
  }
  while (at < text.size() && text[at] != '"' && text[at] != '\\' && static_cast<uint8_t>(text[at]) >= 0x20 &&
         static_cast<uint8_t>(text[at]) < 0x80) {
    ++at;
  }
  return at;
}

bool ReadHex4(std::string_view text, size_t at, char32_t& value) {
  if (at + 4 > text.size()) return false;
  value = 0;
  for (const char c : text.substr(at, 4)) {
    const int digit = HexValue(c);
    if (digit < 0) return false;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return true;
}

// The escape whose backslash is at `at`, which is moved behind it. False: there is none.
bool ReadEscape(std::string_view text, size_t& at, std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  if (at + 1 >= text.size()) return false;
  if (const size_t found = kNames.find(text[at + 1]); found != std::string_view::npos) {
    out = kValues[found];
    at += 2;
    return true;
  }
  char32_t unit = 0, low = 0;
  if (text[at + 1] != 'u' || !ReadHex4(text, at + 2, unit)) return false;
  at += 6;
  if (unit >= 0xD800 && unit < 0xDC00 && text.substr(at, 2) == "\\u" && ReadHex4(text, at + 2, low) &&
      low >= 0xDC00 && low < 0xE000) {
    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    at += 6;
  }
  out.clear();
  if (!AppendUtf8(out, unit)) out = kReplacementCharacter;
  return true;
}

// Hands the value's pieces to `put`, up to the closing quote or the end, where `at` is left. False: it is
// broken there.
template <class Put>
bool WalkString(std::string_view text, size_t& at, Put put) {
  std::string escaped;
  while (at < text.size()) {
    if (const size_t plain = PlainPrefix(text.substr(at)); plain > 0) {
      put(text.substr(at, plain));
      at += plain;
      continue;
    }
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte == '"') return true;
    if (byte == '\\') {
      if (!ReadEscape(text, at, escaped)) return false;
      put(std::string_view(escaped));
    } else if (byte < 0x20) {
      return false;
    } else {
      const CodePoint next = CodePointAt(text, at);
      put(next.whole() ? text.substr(at, next.bytes) : kReplacementCharacter);
      at += next.whole() ? next.bytes : 1;
    }
  }
  return true;
}

}  // namespace

std::string JsonString::Value() const {
  std::string value;
  value.reserve(bytes);
  size_t at = 0;
  WalkString(text, at, [&value](std::string_view piece) { value += piece; });
  return value;
}

bool ReadJsonString(std::string_view text, size_t& at, JsonString& string) {
  const size_t begin = at;
  size_t bytes = 0;
  if (!WalkString(text, at, [&bytes](std::string_view piece) { bytes += piece.size(); })) return false;
  if (at == text.size()) return false;  // no closing quote
  string = {text.substr(begin, at - begin), bytes};
  ++at;
  return true;
}

}  // namespace quire::api
