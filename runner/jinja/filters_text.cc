#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "runner/jinja/compare.h"
#include "runner/jinja/filter_tables.h"
#include "runner/jinja/format.h"
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

Value CenterFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("center", arguments, {"width"});
  const Value soft = SoftStr(runtime, self);
  const int64_t length = *Length(runtime, soft);
  const int64_t width = bound.Int(0, 80);
  const int64_t missing = width > length ? width - length : 0;
  const int64_t before = missing / 2 + (missing & width & 1);
  return Pad(runtime, soft, before, missing - before, nullptr);
}

Value TruncateFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.Int(0, 255);
  const int64_t leeway = bound[3] == nullptr || bound[3]->is_none() ? 5 : bound.Int(3, 5);
  const Value end = bound[2] == nullptr ? runtime.MakeString("...") : bound.String(2);
  const int64_t kept = length - *Length(runtime, end);
  if (kept < 0) Raise(fmt::format("expected length >= {}, got {}", length - kept, length));
  if (leeway < 0) Raise(fmt::format("expected leeway >= 0, got {}", leeway));
  const auto size = Length(runtime, self);
  if (!size) Raise(fmt::format("object of type '{}' has no len()", TypeName(self.type())));
  if (*size - leeway <= length) return self;
  if (!self.is_string()) Raise(fmt::format("truncate wants a string, not {}", TypeName(self.type())));
  const std::string_view text = self.as_view();
  size_t cut = OffsetOfCodePoint(text, static_cast<size_t>(kept));
  if (!bound.Truth(1, false)) {
    const size_t space = text.substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out = runtime.NewText();
  out.Append(self.as_text(), 0, cut);
  out.Append(end.as_text());
  return Value(std::move(out).Finish());
}

Value WordCountFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("wordcount", arguments, {});
  const Value soft = SoftStr(runtime, self);
  const std::string_view text = soft.as_view();
  runtime.budget().StepBytes(text.size());
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const bool part = IsAlpha(c.value) || IsNumeric(c.value) || c.value == U'_';
    if (part && !in_word) ++words;
    in_word = part;
    at += c.bytes;
  }
  return Value(words);
}

Value FormatFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    Raise("can't handle positional and keyword arguments at the same time");
  }
  const Value pattern = SoftStr(runtime, self);
  if (arguments.named.empty()) {
    return FormatPercent(runtime, pattern, runtime.MakeList(arguments.positional, Type::kTuple));
  }
  std::vector<Value::Entry> entries;
  entries.reserve(arguments.named.size());
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value(name), value);
  return FormatPercent(runtime, pattern, runtime.MakeDict(std::move(entries)));
}

template <bool force>
Value EscapeFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("escape", arguments, {});
  Value plain = self;
  if (force && self.is_string() && self.as_text().markup()) {
    TextBuilder unmarked = runtime.NewText();
    unmarked.Append(self.as_text());
    plain = Value(std::move(unmarked).Finish());
  }
  TextBuilder out = runtime.NewText();
  AppendEscaped(out, plain);
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

void AppendQuoted(TextBuilder& out, const Text& text, bool query) {
  ForEachRun(text.bytes(), text.untrusted(), [&](std::string_view run, Trust trust) {
    for (const char c : run) {
      const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (alphanumeric || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query)) {
        out.Append(std::string_view(&c, 1), trust);
      } else if (c == ' ' && query) {
        out.Append("+", trust);
      } else {
        out.Append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), trust);
      }
    }
  });
}

Value UrlEncodeFilter(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("urlencode", arguments, {});
  TextBuilder out = runtime.NewText();
  if (self.is_string() || (!self.is_dict() && !self.is_list())) {
    AppendQuoted(out, *Str(runtime, self), false);
    return Value(std::move(out).Finish());
  }
  const auto pair = [&](const Value& key, const Value& value) {
    if (out.size() != 0) out.Append("&");
    AppendQuoted(out, *Str(runtime, key), true);
    out.Append("=");
    AppendQuoted(out, *Str(runtime, value), true);
  };
  if (self.is_dict()) {
    for (const auto& [key, value] : self.as_dict().entries()) pair(key, value);
  } else {
    const auto items = Iterate(runtime, self);
    for (const Value& item : items->items) {
      const auto parts = Iterate(runtime, item);
      if (parts->items.size() != 2) Raise("urlencode wants pairs");
      pair(parts->items[0], parts->items[1]);
    }
  }
  return Value(std::move(out).Finish());
}

constexpr NamedFilter kTextFilters[] = {
    {"upper", CaseFilter<Case::kUpper>},
    {"lower", CaseFilter<Case::kLower>},
    {"capitalize", CapitalizeFilter},
    {"title", TitleFilter},
    {"trim", TrimFilter},
    {"replace", ReplaceFilter},
    {"indent", IndentFilter},
    {"center", CenterFilter},
    {"truncate", TruncateFilter},
    {"wordcount", WordCountFilter},
    {"format", FormatFilter},
    {"escape", EscapeFilter<false>},
    {"e", EscapeFilter<false>},
    {"forceescape", EscapeFilter<true>},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"urlencode", UrlEncodeFilter},
};

}  // namespace

std::span<const NamedFilter> TextFilters() { return kTextFilters; }

}  // namespace quire::runner::jinja
