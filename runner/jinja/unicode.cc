#include "runner/jinja/unicode.h"

#include <utf8proc.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace quire::runner::jinja {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool IsLetter(utf8proc_category_t category) {
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

// Full case mappings that are longer than one code point, of letters that occur in running text.
struct LongCase {
  char32_t from;
  std::string_view upper;
  std::string_view title;
};
constexpr std::array kLongCases = {
    LongCase{U'ß', "SS", "Ss"},   LongCase{U'ŉ', "ʼN", "ʼN"}, LongCase{U'ﬀ', "FF", "Ff"},
    LongCase{U'ﬁ', "FI", "Fi"},   LongCase{U'ﬂ', "FL", "Fl"}, LongCase{U'ﬃ', "FFI", "Ffi"},
    LongCase{U'ﬄ', "FFL", "Ffl"}, LongCase{U'ﬅ', "ST", "St"}, LongCase{U'ﬆ', "ST", "St"},
    LongCase{U'և', "ԵՒ", "Եւ"},
};

char ToLowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The text without spaces around and without underscores between digits; nothing when an underscore stands
// elsewhere.
std::optional<std::string> CleanNumber(std::string_view text) {
  const Trimmed trimmed = TrimSpaces(text);
  text = text.substr(trimmed.begin, trimmed.end - trimmed.begin);
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      clean.push_back(ToLowerAscii(text[i]));
      continue;
    }
    const auto alphanumeric = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); };
    if (i == 0 || i + 1 == text.size() || !alphanumeric(ToLowerAscii(text[i - 1])) ||
        !alphanumeric(ToLowerAscii(text[i + 1]))) {
      return std::nullopt;
    }
  }
  return clean;
}

}  // namespace

size_t OffsetOfCodePoint(std::string_view text, size_t index) {
  size_t seen = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (api::IsContinuationByte(text[at])) continue;
    if (seen++ == index) return at;
  }
  return text.size();
}

size_t FindBytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsAlpha(char32_t c) { return IsLetter(Category(c)); }

bool IsDigit(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsLower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool IsUpper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool IsTitle(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsPrintable(char32_t c) {
  if (c == U' ') return true;
  const utf8proc_category_t category = Category(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool IsIdentifierStart(char32_t c) {
  return c == U'_' || IsLetter(Category(c)) || Category(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return IsIdentifierStart(c) || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_PC;
}

void AppendCased(std::string& out, char32_t c, Case to) {
  if (to != Case::kLower && c >= 0x80) {
    for (const LongCase& special : kLongCases) {
      if (special.from != c) continue;
      out += to == Case::kUpper ? special.upper : special.title;
      return;
    }
  }
  if (c == 0x130 && to == Case::kLower) {
    out += "i\u0307";
    return;
  }
  const auto point = static_cast<utf8proc_int32_t>(c);
  utf8proc_int32_t cased = point;
  if (to == Case::kLower) cased = utf8proc_tolower(point);
  if (to == Case::kUpper) cased = utf8proc_toupper(point);
  if (to == Case::kTitle) cased = utf8proc_totitle(point);
  api::AppendUtf8(out, static_cast<char32_t>(cased));
}

Trimmed TrimSpaces(std::string_view text) {
  Trimmed trimmed{0, text.size()};
  while (trimmed.begin < trimmed.end) {
    const CodePoint first = CodePointAt(text, trimmed.begin);
    if (!IsSpace(first.value)) break;
    trimmed.begin += first.bytes;
  }
  while (trimmed.end > trimmed.begin) {
    const CodePoint last = CodePointBefore(text, trimmed.end);
    if (!IsSpace(last.value)) break;
    trimmed.end -= last.bytes;
  }
  return trimmed;
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean || clean->empty()) return std::nullopt;
  std::string_view digits = *clean;
  const bool negative = digits.front() == '-';
  if (negative || digits.front() == '+') digits.remove_prefix(1);
  const double sign = negative ? -1.0 : 1.0;
  if (digits == "inf" || digits == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (digits == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (digits.empty() || digits.find_first_not_of("0123456789.e+-") != std::string_view::npos)
    return std::nullopt;
  if (digits.front() == '+' || digits.front() == '-') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return std::nullopt;
  // Out of range, from_chars does not say to which side; strtod does.
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(digits).c_str(), nullptr);
  if (error == std::errc::invalid_argument) return std::nullopt;
  return sign * value;
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean || clean->empty()) return std::nullopt;
  std::string_view digits = *clean;
  const bool negative = digits.front() == '-';
  if (negative || digits.front() == '+') digits.remove_prefix(1);
  const auto prefix = [&](char letter, int means) {
    if (digits.size() < 3 || digits[0] != '0' || digits[1] != letter || (base != 0 && base != means)) return;
    digits.remove_prefix(2);
    base = means;
  };
  prefix('x', 16);
  prefix('o', 8);
  prefix('b', 2);
  if (base == 0) base = 10;
  if (digits.empty() || digits.front() == '-') return std::nullopt;
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1U : 0U);
  if (magnitude > limit) return std::nullopt;
  return negative ? static_cast<int64_t>(0 - magnitude) : static_cast<int64_t>(magnitude);
}

}  // namespace quire::runner::jinja
