// Code points of valid UTF-8, and Python's classes and case of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/utf8.h"

namespace quire::runner::jinja {

using api::CodePoint;
using api::CodePointAt;
using api::CodePointBefore;
using api::CountCodePoints;

// Byte offset of the code point `index`; the length when there are not that many.
size_t OffsetOfCodePoint(std::string_view text, size_t index);

// Where `needle` begins at or after `from`; npos when nowhere. Linear in both, whatever they hold.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from);

bool IsSpace(char32_t c);      // str.isspace(), and what strip() and \s take
bool IsLineBreak(char32_t c);  // str.splitlines()
bool IsAlpha(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsLower(char32_t c);
bool IsUpper(char32_t c);
bool IsTitle(char32_t c);
bool IsPrintable(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);

enum class Case : uint8_t { kLower, kUpper, kTitle };
// One code point in another case; some become several.
void AppendCased(std::string& out, char32_t c, Case to);

// Bytes [begin, end) that remain when spaces are cut off.
struct Trimmed {
  size_t begin = 0;
  size_t end = 0;
};
Trimmed TrimSpaces(std::string_view text);

// "{{ 007.5 }}" of Python's float() and int(): spaces around, underscores between digits, "inf", "nan".
std::optional<double> ParseFloat(std::string_view text);
std::optional<int64_t> ParseInt(std::string_view text, int base);  // base 0 = by prefix; nothing beyond int64

}  // namespace quire::runner::jinja
