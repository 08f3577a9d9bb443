#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/filter_tables.h"
#include "runner/jinja/formatting.h"
#include "runner/jinja/sequence.h"
#include "runner/jinja/show.h"
#include "runner/jinja/text_ops.h"

namespace quire::runner::jinja {
namespace {

template <Case to>
Value CaseFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound(to == Case::kUpper ? "upper" : "lower", arguments, {});
  return ChangeCase(runtime, SoftStr(runtime, self), to);
}

Value CapitalizeFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("capitalize", arguments, {});
  return Capitalize(runtime, SoftStr(runtime, self));
}

// Words begin after spaces, hyphens and opening brackets; unlike str.title(), not after an apostrophe.
Value TitleFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("title", arguments, {});
  bool in_word = false;
  return ByCodePoint(runtime, SoftStr(runtime, self), [&in_word](char32_t c) {
    const bool between = IsSpace(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
    const Case to = between || in_word ? Case::kLower : Case::kUpper;
    in_word = !between;
    return to;
  });
}

Value TrimFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("trim", arguments, {"chars"});
  const Value* chars = bound[0] == nullptr || bound[0]->is_none() ? nullptr : &bound.String(0);
  return Strip(runtime, SoftStr(runtime, self), chars, Side::kBoth);
}

// Jinja takes the plain str() of everything here, so markup is lost.
Value ReplaceFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  const bool all = bound[2] == nullptr || bound[2]->is_none();
  Value replaced = Replace(runtime, SoftStr(runtime, self), SoftStr(runtime, *bound[0]),
                           SoftStr(runtime, *bound[1]), all ? -1 : bound.Int(2, -1));
  if (!replaced.as_text().markup()) return replaced;
  TextBuilder plain = runtime.NewText();
  plain.Append(replaced.as_text());
  return Value(std::move(plain).Finish());
}

Value IndentFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
  RequireDefined(self);
  if (!self.is_string()) Raise(fmt::format("indent wants a string, not {}", TypeName(self.type())));
  TextBuilder indentation = runtime.NewText();
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indentation.Append(bound[0]->as_text());
  } else {
    indentation.AppendFill(static_cast<size_t>(std::max<int64_t>(bound.Int(0, 4), 0)), ' ');
  }
  const TextRef prefix = std::move(indentation).Finish();
  std::vector<Value> lines = SplitLines(runtime, self, false);
  const std::string_view text = self.as_view();
  // Jinja splits with a newline appended: a text that ends its last line has one more, empty line.
  const bool ended =
      !text.empty() && text.back() != '\r' && IsLineBreak(CodePointBefore(text, text.size()).value);
  if (text.empty() || ended) lines.push_back(runtime.MakeString(""));
  const bool blank = bound.Truth(2, false);
  TextBuilder out = runtime.NewText();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out.Append("\n");
    const bool indents = i == 0 ? bound.Truth(1, false) : blank || lines[i].as_text().size() != 0;
    if (indents) out.Append(*prefix);
    out.Append(lines[i].as_text());
  }
  return Value(std::move(out).Finish(self.as_text().markup()));
}

Value EscapeFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("escape", arguments, {});
  TextBuilder out = runtime.NewText();
  AppendEscaped(out, self);
  return Value(std::move(out).Finish(true));
}

Value SafeFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("safe", arguments, {});
  TextBuilder out = runtime.NewText();
  AppendStr(out, self);
  return Value(std::move(out).Finish(true));
}

Value StringFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("string", arguments, {});
  return SoftStr(runtime, self);
}

Value FormatFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    Raise("can't handle positional and keyword arguments at the same time");
  }
  std::vector<Value::Entry> named;
  named.reserve(arguments.named.size());
  for (const auto& [name, value] : arguments.named) named.emplace_back(Value(name), value);
  return FormatPercent(runtime, SoftStr(runtime, self),
                       named.empty() ? runtime.MakeList(arguments.positional, Type::kTuple)
                                     : runtime.MakeDict(std::move(named)));
}

Value CenterFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("center", arguments, {"width"});
  return Pad(runtime, SoftStr(runtime, self), bound.Int(0, 80), Align::kCenter);
}

constexpr NamedFilter kTextFilters[] = {
    {"format", FormatFilter},
    {"center", CenterFilter},
    {"upper", CaseFilter<Case::kUpper>},
    {"lower", CaseFilter<Case::kLower>},
    {"capitalize", CapitalizeFilter},
    {"title", TitleFilter},
    {"trim", TrimFilter},
    {"replace", ReplaceFilter},
    {"indent", IndentFilter},
    {"escape", EscapeFilter},
    {"e", EscapeFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
};

}  // namespace

std::span<const NamedFilter> TextFilters() { return kTextFilters; }

}  // namespace quire::runner::jinja
