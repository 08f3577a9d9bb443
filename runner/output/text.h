// Text helpers that the parsers share.
#pragma once

#include <string>
#include <string_view>

namespace quire::runner::output {

// Stands before a token of the model's own in what parsers hold; no UTF-8 text has this byte.
inline constexpr char kTokenMark = '\xFF';

inline std::string WithoutTokenMarks(std::string_view text) {
  std::string plain(text);
  std::erase(plain, kTokenMark);
  return plain;
}

inline bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline std::string_view TrimLeft(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  return text;
}

inline std::string_view TrimRight(std::string_view text) {
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

inline std::string_view Trim(std::string_view text) { return TrimLeft(TrimRight(text)); }

// Whether `text` is the beginning of `whole`, and not all of it.
inline bool IsBeginOf(std::string_view text, std::string_view whole) {
  return text.size() < whole.size() && whole.starts_with(text);
}

}  // namespace quire::runner::output
