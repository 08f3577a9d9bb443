// Methods of strings that ask for or change their form: case and character classes.
#include <string_view>

#include "runner/jinja/formatting.h"
#include "runner/jinja/method_tables.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/text_ops.h"
#include "runner/jinja/unicode.h"

namespace quire::runner::jinja {
namespace {

template <Case to>
Value CaseMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("lower", arguments, {});
  return ChangeCase(runtime, self, to);
}

Value CapitalizeMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("capitalize", arguments, {});
  return Capitalize(runtime, self);
}

bool IsCased(char32_t c) { return IsLower(c) || IsUpper(c) || IsTitle(c); }

Value TitleMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("title", arguments, {});
  bool in_word = false;
  return ByCodePoint(runtime, self, [&in_word](char32_t c) {
    const Case to = in_word ? Case::kLower : Case::kTitle;
    in_word = IsCased(c);
    return to;
  });
}

// True when there is a code point and every one is in the class.
template <bool (*in_class)(char32_t)>
Value ClassMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("isalpha", arguments, {});
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(text.size());
  for (size_t at = 0; at < text.size(); at += CodePointAt(text, at).bytes) {
    if (!in_class(CodePointAt(text, at).value)) return Value(false);
  }
  return Value(!text.empty());
}

bool IsAlphanumeric(char32_t c) { return IsAlpha(c) || IsNumeric(c); }

// islower() and isupper(): some cased code point, and none of the other case.
template <bool lower>
Value IsCaseMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("islower", arguments, {});
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(text.size());
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (IsTitle(c.value) || (lower ? IsUpper(c.value) : IsLower(c.value))) return Value(false);
    any |= lower ? IsLower(c.value) : IsUpper(c.value);
    at += c.bytes;
  }
  return Value(any);
}

template <Align align>
Value PadMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("ljust", arguments, {"width", "fillchar"}, 1);
  const std::string_view fill = bound[1] == nullptr ? " " : bound.String(1).as_view();
  if (fill.empty() || OffsetOfCodePoint(fill, 1) != fill.size()) {
    Raise("The fill character must be exactly one character long");
  }
  return Pad(runtime, self, bound.Int(0, 0), align, fill);
}

Value ZfillMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("zfill", arguments, {"width"}, 1);
  const bool sign =
      !self.as_view().empty() && (self.as_view().front() == '-' || self.as_view().front() == '+');
  const size_t digits = sign ? 1 : 0;
  const Value rest = runtime.Slice(self, digits, self.as_text().size());
  TextBuilder out = runtime.NewText();
  out.Append(self.as_text(), 0, digits);
  out.Append(
      Pad(runtime, rest, bound.Int(0, 0) - static_cast<int64_t>(digits), Align::kRight, "0").as_text());
  return Value(std::move(out).Finish());
}

constexpr NamedMethod kFormMethods[] = {
    {"format", FormatBraces},
    {"ljust", PadMethod<Align::kLeft>},
    {"rjust", PadMethod<Align::kRight>},
    {"center", PadMethod<Align::kCenter>},
    {"zfill", ZfillMethod},
    {"lower", CaseMethod<Case::kLower>},
    {"upper", CaseMethod<Case::kUpper>},
    {"capitalize", CapitalizeMethod},
    {"title", TitleMethod},
    {"isalpha", ClassMethod<IsAlpha>},
    {"isalnum", ClassMethod<IsAlphanumeric>},
    {"isdigit", ClassMethod<IsDigit>},
    {"isspace", ClassMethod<IsSpace>},
    {"islower", IsCaseMethod<true>},
    {"isupper", IsCaseMethod<false>},
};

}  // namespace

std::span<const NamedMethod> StringFormMethods() { return kFormMethods; }

}  // namespace quire::runner::jinja
