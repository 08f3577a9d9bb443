// ASCII text, independent of the locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace quire::api {

constexpr char AsciiLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

constexpr bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool IsAsciiAlnum(char c) { return IsAsciiLetter(c) || IsAsciiDigit(c); }
// -1 for any other character.
constexpr int HexValue(char c) {
  if (IsAsciiDigit(c)) return c - '0';
  c = AsciiLower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// True of an empty text too.
constexpr bool AllAsciiDigits(std::string_view text) { return std::ranges::all_of(text, IsAsciiDigit); }

// The text without the characters of `dropped` at either end.
constexpr std::string_view Trimmed(std::string_view text, std::string_view dropped = " \t\r\f\v\n") {
  const size_t begin = std::min(text.find_first_not_of(dropped), text.size());
  return text.substr(begin, text.find_last_not_of(dropped) + 1 - begin);
}

inline std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return AsciiLower(c); });
  return lower;
}

constexpr bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](char c) { return AsciiLower(c); }, [](char c) { return AsciiLower(c); });
}

}  // namespace quire::api
