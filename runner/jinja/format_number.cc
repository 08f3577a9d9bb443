#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "runner/jinja/format.h"
#include "runner/jinja/show.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

constexpr int64_t kPrecisionMax = 1000;  // digits of a float; Python knows no bound, no template needs more

void AppendPadding(TextBuilder& out, std::string_view fill, int64_t count) {
  if (fill.size() == 1) return out.AppendFill(static_cast<size_t>(std::max<int64_t>(count, 0)), fill[0]);
  for (int64_t i = 0; i < count; ++i) out.Append(fill);
}

// Thousands apart, right to left, before any point or exponent.
std::string Group(const std::string& digits, char separator, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string grouped;
  for (size_t i = 0; i < whole; ++i) {
    if (i != 0 && (whole - i) % size == 0) grouped.push_back(separator);
    grouped.push_back(digits[i]);
  }
  return grouped + digits.substr(whole);
}

uint64_t Magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

std::string IntDigits(uint64_t magnitude, const Conversion& style, std::string& prefix) {
  switch (style.type) {
    case 'b':
      if (style.alternate) prefix = "0b";
      return fmt::format("{:b}", magnitude);
    case 'o':
      if (style.alternate) prefix = "0o";
      return fmt::format("{:o}", magnitude);
    case 'x':
      if (style.alternate) prefix = "0x";
      return fmt::format("{:x}", magnitude);
    case 'X':
      if (style.alternate) prefix = "0X";
      return fmt::format("{:X}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string FloatDigits(double magnitude, const Conversion& style) {
  if (style.type == '\0' && style.precision < 0) return FloatRepr(magnitude);
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  if (style.precision > kPrecisionMax) Raise("a float's precision is too big");
  const int precision = style.precision < 0 ? 6 : static_cast<int>(style.precision);
  switch (style.type) {
    case 'e':
    case 'E':
      return fmt::format(fmt::runtime(style.alternate ? "{:#.{}e}" : "{:.{}e}"), magnitude, precision);
    case 'f':
    case 'F':
      return fmt::format(fmt::runtime(style.alternate ? "{:#.{}f}" : "{:.{}f}"), magnitude, precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      break;
  }
  const int digits = std::max(precision, 1);
  std::string text = fmt::format(fmt::runtime(style.alternate ? "{:#.{}g}" : "{:.{}g}"), magnitude, digits);
  if (style.type == '\0' && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool IsIntType(char type) {
  return type != '\0' && std::string_view("bcdoxXn").find(type) != std::string_view::npos;
}
bool IsFloatType(char type) {
  return type != '\0' && std::string_view("eEfFgG%n").find(type) != std::string_view::npos;
}

[[noreturn]] void RaiseType(const Conversion& style, const Value& value) {
  Raise(fmt::format("unknown format code '{}' for object of type '{}'", style.type, TypeName(value.type())));
}

void AppendAligned(TextBuilder& out, std::string_view sign, std::string_view body, const Conversion& style) {
  const int64_t missing = style.width - static_cast<int64_t>(sign.size() + body.size());
  const char align = style.align != '\0' ? style.align : style.zero ? '=' : '>';
  const std::string_view fill = style.zero && style.align == '\0' ? "0" : std::string_view(style.fill);
  if (align == '>') AppendPadding(out, fill, missing);
  if (align == '^') AppendPadding(out, fill, missing / 2);
  out.Append(sign);
  if (align == '=') AppendPadding(out, fill, missing);
  out.Append(body);
  if (align == '<') AppendPadding(out, fill, missing);
  if (align == '^') AppendPadding(out, fill, missing - missing / 2);
}

}  // namespace

void AppendConverted(TextBuilder& out, const Text& text, const Conversion& style) {
  size_t end = text.size();
  if (style.precision >= 0) end = OffsetOfCodePoint(text.bytes(), static_cast<size_t>(style.precision));
  const auto length = static_cast<int64_t>(CountCodePoints(std::string_view(text.bytes()).substr(0, end)));
  const int64_t missing = std::max<int64_t>(style.width - length, 0);
  if (style.align == '>') AppendPadding(out, style.fill, missing);
  if (style.align == '^') AppendPadding(out, style.fill, missing / 2);
  out.Append(text, 0, end);
  if (style.align == '<' || style.align == '\0') AppendPadding(out, style.fill, missing);
  if (style.align == '^') AppendPadding(out, style.fill, missing - missing / 2);
}

void AppendConverted(TextBuilder& out, const Value& number, Conversion style) {
  std::string prefix;
  std::string digits;
  bool negative = false;
  if (number.is_integral() && !IsFloatType(style.type)) {
    if (style.type != '\0' && !IsIntType(style.type)) RaiseType(style, number);
    if (style.type == 'c') {
      if (number.as_int() < 0 || number.as_int() > 0x10FFFF ||
          !api::AppendUtf8(digits, static_cast<char32_t>(number.as_int()))) {
        Raise("%c arg not in range");
      }
      return AppendConverted(out, *MakeText(digits), style);
    }
    negative = number.as_int() < 0;
    digits = IntDigits(Magnitude(number.as_int()), style, prefix);
  } else {
    if (style.type != '\0' && !IsFloatType(style.type)) RaiseType(style, number);
    if (style.type == 'n') style.type = 'g';
    const double value = number.as_double();
    negative = std::signbit(value) && !std::isnan(value);
    digits = FloatDigits(std::fabs(value), style);
  }
  if (style.type == 'E' || style.type == 'F' || style.type == 'G') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  }
  if (style.grouping != '\0') {
    const bool bits = style.type == 'b' || style.type == 'o' || style.type == 'x' || style.type == 'X';
    digits = Group(digits, style.grouping, bits ? 4 : 3);
  }
  const std::string sign = negative ? "-" : style.sign == '-' ? "" : std::string(1, style.sign);
  AppendAligned(out, sign + prefix, digits, style);
}

}  // namespace quire::runner::jinja
