#include "runner/jinja/formatting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

constexpr int64_t kWidthMax = 10'000;
constexpr int64_t kPrecisionMax = 100;

struct Spec {
  std::string fill = " ";
  std::optional<Align> align = {};
  std::string sign = {};  // "+" or " ": before numbers that are not negative
  bool alternate = false;
  bool zeros = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

bool IsDigitAt(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

int64_t ReadNumber(std::string_view text, size_t& at, int64_t most) {
  int64_t number = 0;
  for (; IsDigitAt(text, at); ++at) {
    number = number * 10 + (text[at] - '0');
    if (number > most) Raise("a width or precision of a format is too large");
  }
  return number;
}

std::string Whole(const Value& value, const Spec& spec) {
  const auto bits = static_cast<uint64_t>(value.as_int());
  const uint64_t magnitude = value.as_int() < 0 ? 0 - bits : bits;
  switch (spec.type) {
    case 'x':
      return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
    case 'b':
      return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string Fraction(double value, const Spec& spec) {
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const bool percent = spec.type == '%';
  const std::string pattern = std::string("%.*") + (percent ? 'f' : spec.type);
  char buffer[512];
  const int size = std::snprintf(buffer, sizeof buffer, pattern.c_str(), precision,
                                 std::fabs(value) * (percent ? 100 : 1));
  return std::string(buffer, static_cast<size_t>(std::clamp<int>(size, 0, sizeof buffer - 1))) +
         (percent ? "%" : "");
}

std::string WithCommas(std::string digits) {
  size_t end = std::min(digits.find('.'), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// The digits of a number without its sign; nothing where the type is for texts.
std::optional<std::string> Digits(const Value& value, const Spec& spec, bool percent_style) {
  const bool whole = spec.type != 0 && std::string_view("dixXob").find(spec.type) != std::string_view::npos;
  const bool fraction =
      spec.type != 0 && std::string_view("fFeEgG%").find(spec.type) != std::string_view::npos;
  const bool plain =
      spec.type == 0 && value.is_number() && (spec.precision >= 0 || spec.commas || !spec.sign.empty());
  if (!whole && !fraction && !plain) return std::nullopt;
  if (!value.is_number()) {
    Raise(fmt::format("format '{}': a number is required, not {}", spec.type, TypeName(value.type())));
  }
  std::string digits;
  if (fraction || (plain && !value.is_integral())) {
    Spec of_float = spec;
    if (plain) of_float.type = spec.precision < 0 ? 'f' : 'g';
    digits = Fraction(value.as_double(), of_float);
  } else if (value.is_integral()) {
    digits = Whole(value, spec);
  } else {
    if (!percent_style) Raise(fmt::format("unknown format code '{}' for object of type 'float'", spec.type));
    if (!std::isfinite(value.as_double()) || std::fabs(value.as_double()) > 9e18)
      Raise("cannot convert float to integer");
    digits = Whole(Value(static_cast<int64_t>(value.as_double())), spec);
  }
  return spec.commas ? WithCommas(std::move(digits)) : digits;
}

void AppendFormatted(Runtime& runtime, TextBuilder& out, const Value& value, const Spec& spec,
                     bool percent_style) {
  RequireDefined(value);
  if (const auto digits = Digits(value, spec, percent_style)) {
    const bool negative = value.is_integral() ? value.as_int() < 0 : std::signbit(value.as_double());
    const std::string sign = negative ? "-" : spec.sign;
    const auto size = static_cast<int64_t>(sign.size() + digits->size());
    const std::string zeros(
        static_cast<size_t>(spec.zeros && spec.align != Align::kLeft ? std::max<int64_t>(spec.width - size, 0)
                                                                     : 0),
        '0');
    const Value text = runtime.MakeString(sign + zeros + *digits);
    out.Append(Pad(runtime, text, spec.width, spec.align.value_or(Align::kRight), spec.fill).as_text());
    return;
  }
  Value text(spec.type == 'r' ? Repr(runtime, value) : Str(runtime, value));
  if (spec.type != 0 && spec.type != 's' && spec.type != 'r') {
    Raise(fmt::format("unsupported format character '{}'", spec.type));
  }
  if (spec.precision >= 0) {
    const int64_t length = *Length(runtime, text);
    const auto kept = static_cast<size_t>(std::min(length, spec.precision));
    text = runtime.Slice(text, 0, OffsetOfCodePoint(text.as_view(), kept));
  }
  const bool right = percent_style || value.is_number();
  out.Append(
      Pad(runtime, text, spec.width, spec.align.value_or(right ? Align::kRight : Align::kLeft), spec.fill)
          .as_text());
}

// What follows a '%': flags, width, precision, type.
Spec ReadPercentSpec(std::string_view text, size_t& at) {
  Spec spec;
  for (; at < text.size(); ++at) {
    if (text[at] == '-') {
      spec.align = Align::kLeft;
    } else if (text[at] == '0') {
      spec.zeros = true;
    } else if (text[at] == '+' || text[at] == ' ') {
      spec.sign = std::string(1, text[at]);
    } else if (text[at] == '#') {
      spec.alternate = true;
    } else {
      break;
    }
  }
  spec.width = ReadNumber(text, at, kWidthMax);
  if (at < text.size() && text[at] == '.') spec.precision = ReadNumber(text, ++at, kPrecisionMax);
  if (at >= text.size()) Raise("incomplete format");
  spec.type = text[at++];
  return spec;
}

bool IsAlign(std::string_view text, size_t at) {
  return at < text.size() && std::string_view("<>^").find(text[at]) != std::string_view::npos;
}

// What follows a ':' in braces.
Spec ReadBraceSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const size_t first = text.empty() ? 0 : OffsetOfCodePoint(text, 1);
  if (first > 0 && IsAlign(text, first)) {
    spec.fill = text.substr(0, first);
    at = first;
  }
  if (IsAlign(text, at)) spec.align = static_cast<Align>(text[at++]);
  if (at < text.size() && (text[at] == '+' || text[at] == ' ' || text[at] == '-')) {
    if (text[at] != '-') spec.sign = std::string(1, text[at]);
    ++at;
  }
  if (at < text.size() && text[at] == '#') spec.alternate = ++at > 0;
  if (at < text.size() && text[at] == '0' && !spec.align) spec.zeros = ++at > 0;
  spec.width = ReadNumber(text, at, kWidthMax);
  if (at < text.size() && text[at] == ',') spec.commas = ++at > 0;
  if (at < text.size() && text[at] == '.') spec.precision = ReadNumber(text, ++at, kPrecisionMax);
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) Raise("invalid format specifier");
  return spec;
}

// The value that "%(name)s" or the next "%s" shows.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {}

  Value Next() {
    if (IsTuple(values_)) {
      const auto& items = values_.as_list().items;
      if (next_ >= items.size()) Raise("not enough arguments for format string");
      return items[next_++];
    }
    if (next_++ > 0) Raise("not enough arguments for format string");
    return values_;
  }
  Value Named(std::string_view name) {
    next_ = 1;
    const Value* found = values_.is_dict() ? values_.as_dict().Find(name) : nullptr;
    if (found == nullptr) Raise(fmt::format("format requires a mapping with '{}'", name));
    return *found;
  }
  void CheckAllUsed() const {
    const bool left =
        IsTuple(values_) ? next_ < values_.as_list().items.size() : next_ == 0 && !values_.is_dict();
    if (left) Raise("not all arguments converted during string formatting");
  }

 private:
  const Value& values_;
  size_t next_ = 0;
};

Value FieldOf(Runtime& runtime, std::string_view name, size_t& next, const CallArguments& arguments) {
  if (name.empty() || IsDigitAt(name, 0)) {
    size_t at = 0;
    const size_t index = name.empty() ? next++ : static_cast<size_t>(ReadNumber(name, at, kWidthMax));
    if (at == name.size() && index < arguments.positional.size()) return arguments.positional[index];
    Raise("Replacement index out of range for positional args tuple");
  }
  for (const auto& [key, value] : arguments.named) {
    runtime.budget().Step();
    if (key->bytes() == name) return value;
  }
  Raise(fmt::format("format: there is no argument '{}'", name));
}

}  // namespace

Value Pad(Runtime& runtime, const Value& text, int64_t width, Align align, std::string_view fill) {
  const int64_t missing = width - *Length(runtime, text);
  if (missing <= 0) return text;
  if (width > kWidthMax * 100) Raise("a width is too large");
  const int64_t left = align == Align::kLeft ? 0 : align == Align::kRight ? missing : missing / 2;
  TextBuilder out = runtime.NewText();
  runtime.budget().StepBytes(static_cast<size_t>(missing) * fill.size());
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(text.as_text());
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return Value(std::move(out).Finish());
}

Value FormatPercent(Runtime& runtime, const Value& pattern, const Value& values) {
  const std::string_view text = pattern.as_view();
  PercentValues source(values);
  TextBuilder out = runtime.NewText();
  size_t at = 0;
  while (at < text.size()) {
    runtime.budget().Step();
    const size_t percent = std::min(text.find('%', at), text.size());
    out.Append(pattern.as_text(), at, percent);
    if (percent == text.size()) break;
    at = percent + 1;
    std::optional<std::string_view> name;
    if (at < text.size() && text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == std::string_view::npos) Raise("incomplete format key");
      name = text.substr(at + 1, close - at - 1);
      at = close + 1;
    }
    const Spec spec = ReadPercentSpec(text, at);
    if (spec.type == '%') {
      out.Append("%");
    } else {
      AppendFormatted(runtime, out, name ? source.Named(*name) : source.Next(), spec, true);
    }
  }
  source.CheckAllUsed();
  return Value(std::move(out).Finish());
}

Value FormatBraces(Runtime& runtime, const Value& pattern, const CallArguments& arguments) {
  const std::string_view text = pattern.as_view();
  TextBuilder out = runtime.NewText();
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    runtime.budget().Step();
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.Append(pattern.as_text(), at, brace);
    if (brace == text.size()) break;
    at = brace + 1;
    if (at < text.size() && text[at] == text[brace]) {  // {{ or }}
      out.Append(pattern.as_text(), brace, at++);
      continue;
    }
    const size_t close = text.find('}', at);
    if (text[brace] == '}' || close == std::string_view::npos)
      Raise("Single brace encountered in format string");
    const std::string_view field = text.substr(at, close - at);
    at = close + 1;
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon);
    if (name.find_first_of(".[!") != std::string_view::npos)
      Raise("format: fields have no attributes or conversions");
    const Spec spec = colon < field.size() ? ReadBraceSpec(field.substr(colon + 1)) : Spec();
    AppendFormatted(runtime, out, FieldOf(runtime, name, next, arguments), spec, false);
  }
  return Value(std::move(out).Finish());
}

}  // namespace quire::runner::jinja
