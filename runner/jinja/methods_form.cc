// Methods of strings that ask for or change their form: case, character classes, padding.
#include <algorithm>
#include <string_view>

#include "runner/jinja/method_tables.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/text_ops.h"

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

Value SwapCaseMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("swapcase", arguments, {});
  return ByCodePoint(runtime, self, [](char32_t c) { return IsUpper(c) ? Case::kLower : Case::kUpper; });
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

Value IsAsciiMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("isascii", arguments, {});
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(text.size());
  return Value(
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value IsPrintableMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const Value all = ClassMethod<IsPrintable>(runtime, self, arguments);
  return Value(self.as_text().size() == 0 || all.as_bool());
}

Value IsIdentifierMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const Value all = ClassMethod<IsIdentifierPart>(runtime, self, arguments);
  return Value(all.as_bool() && IsIdentifierStart(CodePointAt(self.as_view(), 0).value));
}

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

Value IsTitleMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("istitle", arguments, {});
  const std::string_view text = self.as_view();
  runtime.budget().StepBytes(text.size());
  bool any = false;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const bool upper = IsUpper(c.value) || IsTitle(c.value);
    if (upper ? in_word : IsLower(c.value) && !in_word) return Value(false);
    in_word = IsCased(c.value);
    any |= in_word;
    at += c.bytes;
  }
  return Value(any);
}

enum class Toward : uint8_t { kLeft, kRight, kMiddle };

template <Toward toward>
Value JustifyMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("center", arguments, {"width", "fillchar"}, 1);
  const Value* fill = bound[1] == nullptr ? nullptr : &bound.String(1);
  const int64_t width = bound.Int(0, 0);
  const int64_t length = *Length(runtime, self);
  const int64_t missing = width > length ? width - length : 0;
  if (toward == Toward::kLeft) return Pad(runtime, self, 0, missing, fill);
  if (toward == Toward::kRight) return Pad(runtime, self, missing, 0, fill);
  const int64_t before = missing / 2 + (missing & width & 1);  // as CPython rounds
  return Pad(runtime, self, before, missing - before, fill);
}

Value ZfillMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("zfill", arguments, {"width"}, 1);
  const int64_t missing = bound.Int(0, 0) - *Length(runtime, self);
  if (missing <= 0) return self;
  const Text& text = self.as_text();
  const size_t sign = text.size() != 0 && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
  TextBuilder out = runtime.NewText();
  out.Append(text, 0, sign);
  out.AppendFill(static_cast<size_t>(missing), '0');
  out.Append(text, sign, text.size());
  return Value(std::move(out).Finish(text.markup()));
}

Value ExpandTabsMethod(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("expandtabs", arguments, {"tabsize"});
  const int64_t size = bound.Int(0, 8);
  const Text& text = self.as_text();
  TextBuilder out = runtime.NewText();
  int64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text.bytes(), at);
    if (c.value == U'\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.AppendFill(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out.Append(text, at, at + c.bytes);
      column = c.value == U'\n' || c.value == U'\r' ? 0 : column + 1;
    }
    at += c.bytes;
  }
  return Value(std::move(out).Finish(text.markup()));
}

constexpr NamedMethod kFormMethods[] = {
    {"lower", CaseMethod<Case::kLower>},
    {"upper", CaseMethod<Case::kUpper>},
    {"casefold", CaseMethod<Case::kFold>},
    {"capitalize", CapitalizeMethod},
    {"title", TitleMethod},
    {"swapcase", SwapCaseMethod},
    {"isalpha", ClassMethod<IsAlpha>},
    {"isalnum", ClassMethod<IsAlphanumeric>},
    {"isdecimal", ClassMethod<IsDecimal>},
    {"isdigit", ClassMethod<IsDigit>},
    {"isnumeric", ClassMethod<IsNumeric>},
    {"isspace", ClassMethod<IsSpace>},
    {"isascii", IsAsciiMethod},
    {"isprintable", IsPrintableMethod},
    {"isidentifier", IsIdentifierMethod},
    {"islower", IsCaseMethod<true>},
    {"isupper", IsCaseMethod<false>},
    {"istitle", IsTitleMethod},
    {"center", JustifyMethod<Toward::kMiddle>},
    {"ljust", JustifyMethod<Toward::kLeft>},
    {"rjust", JustifyMethod<Toward::kRight>},
    {"zfill", ZfillMethod},
    {"expandtabs", ExpandTabsMethod},
};

}  // namespace

std::span<const NamedMethod> StringFormMethods() { return kFormMethods; }

}  // namespace quire::runner::jinja
