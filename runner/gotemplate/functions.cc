#include "runner/gotemplate/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <utility>

#include "api/base/utf8.h"
#include "runner/jinja/show.h"

namespace quire::runner::gotemplate {
namespace {

using jinja::Kind;
using jinja::Raise;
using jinja::Runtime;
using jinja::TextBuilder;
using jinja::Value;
using Arguments = std::span<const Value>;

constexpr size_t kMany = std::numeric_limits<size_t>::max();

const jinja::JsonStyle& CompactJson() {
  static const jinja::JsonStyle style{
      .indent = std::nullopt, .item_separator = ",", .key_separator = ":", .sort_keys = false};
  return style;
}

Value Not(Runtime&, Arguments arguments) { return Value(!IsTrue(arguments[0])); }

size_t LengthOf(const Value& value) {
  if (value.is_none()) return 0;
  if (value.is_string()) return value.as_view().size();
  if (value.is_list()) return value.as_list().items.size();
  if (value.is_dict()) return value.as_dict().entries().size();
  Raise(fmt::format("len of type {}", KindName(value)));
}

Value Len(Runtime&, Arguments arguments) { return Value(static_cast<int64_t>(LengthOf(arguments[0]))); }

size_t IndexOf(const Value& index, size_t length, std::string_view function) {
  if (index.kind() != Kind::kInt) {
    Raise(fmt::format("{}: cannot use {} as an index", function, KindName(index)));
  }
  const int64_t at = index.as_int();
  if (at < 0 || static_cast<uint64_t>(at) > length) {
    Raise(fmt::format("{}: index out of range: {}", function, at));
  }
  return static_cast<size_t>(at);
}

Value Index(Runtime&, Arguments arguments) {
  Value value = arguments[0];
  for (const Value& index : arguments.subspan(1)) {
    Value element;
    if (value.is_dict()) {
      if (const Value* found = value.as_dict().Find(index)) element = *found;
    } else if (value.is_list()) {
      const auto& items = value.as_list().items;
      const size_t at = IndexOf(index, items.size(), "index");
      if (at == items.size()) Raise(fmt::format("index: index out of range: {}", at));
      element = items[at];
    } else {
      Raise(fmt::format("index of type {}", KindName(value)));
    }
    value = std::move(element);
  }
  return value;
}

Value SliceOf(Runtime& runtime, Arguments arguments) {
  const Value& value = arguments[0];
  const size_t length = value.is_string() || value.is_list() ? LengthOf(value) : 0;
  if (!value.is_string() && !value.is_list()) Raise(fmt::format("slice of type {}", KindName(value)));
  const size_t begin = arguments.size() > 1 ? IndexOf(arguments[1], length, "slice") : 0;
  const size_t end = arguments.size() > 2 ? IndexOf(arguments[2], length, "slice") : length;
  if (begin > end) Raise(fmt::format("slice: invalid range: {} > {}", begin, end));
  if (value.is_list()) {
    const auto& items = value.as_list().items;
    runtime.budget().Step(end - begin);
    return runtime.MakeList(
        {items.begin() + static_cast<ptrdiff_t>(begin), items.begin() + static_cast<ptrdiff_t>(end)});
  }
  const std::string_view text = value.as_view();
  const auto inside = [&](size_t at) { return at < text.size() && api::IsContinuationByte(text[at]); };
  if (inside(begin) || inside(end)) Raise("slice: the boundary is inside a character");
  return runtime.Slice(value, begin, end);
}

// -1, 0, 1; raises for kinds that cannot be compared.
int Compare(Runtime& runtime, const Value& a, const Value& b, std::string_view function) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : static_cast<int>(y < x); };
  const auto numeric = [](const Value& value) {
    return value.kind() == Kind::kInt || value.kind() == Kind::kDouble;
  };
  if (numeric(a) && numeric(b)) {
    return a.kind() == Kind::kInt && b.kind() == Kind::kInt ? order(a.as_int(), b.as_int())
                                                            : order(a.as_double(), b.as_double());
  }
  if (a.is_string() && b.is_string()) {
    runtime.budget().StepBytes(std::min(a.as_view().size(), b.as_view().size()));
    return order(a.as_view(), b.as_view());
  }
  if (a.kind() == Kind::kBool && b.kind() == Kind::kBool) return order(a.as_bool(), b.as_bool());
  Raise(fmt::format("{}: incompatible types for comparison: {} and {}", function, KindName(a), KindName(b)));
}

bool Equal(Runtime& runtime, const Value& a, const Value& b, std::string_view function) {
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  return Compare(runtime, a, b, function) == 0;
}

Value Eq(Runtime& runtime, Arguments arguments) {
  const auto others = arguments.subspan(1);
  return Value(std::ranges::any_of(
      others, [&](const Value& other) { return Equal(runtime, arguments[0], other, "eq"); }));
}
Value Ne(Runtime& runtime, Arguments arguments) {
  return Value(!Equal(runtime, arguments[0], arguments[1], "ne"));
}
Value Lt(Runtime& runtime, Arguments arguments) {
  return Value(Compare(runtime, arguments[0], arguments[1], "lt") < 0);
}
Value Le(Runtime& runtime, Arguments arguments) {
  return Value(Compare(runtime, arguments[0], arguments[1], "le") <= 0);
}
Value Gt(Runtime& runtime, Arguments arguments) {
  return Value(Compare(runtime, arguments[0], arguments[1], "gt") > 0);
}
Value Ge(Runtime& runtime, Arguments arguments) {
  return Value(Compare(runtime, arguments[0], arguments[1], "ge") >= 0);
}

// fmt.Sprint: a space between operands when neither is a string.
Value Print(Runtime& runtime, Arguments arguments) {
  TextBuilder out = runtime.NewText();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0 && !arguments[i].is_string() && !arguments[i - 1].is_string()) out.Append(" ");
    AppendValue(runtime, out, arguments[i]);
  }
  return Value(std::move(out).Finish());
}

Value Println(Runtime& runtime, Arguments arguments) {
  TextBuilder out = runtime.NewText();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) out.Append(" ");
    AppendValue(runtime, out, arguments[i]);
  }
  out.Append("\n");
  return Value(std::move(out).Finish());
}

void AppendVerb(Runtime& runtime, TextBuilder& out, char verb, const Value& value) {
  switch (verb) {
    case 's':
    case 'v':
      return AppendValue(runtime, out, value);
    case 't':
      if (value.kind() != Kind::kBool) Raise(fmt::format("printf: %t of type {}", KindName(value)));
      return AppendValue(runtime, out, value);
    case 'd':
      if (value.kind() != Kind::kInt) Raise(fmt::format("printf: %d of type {}", KindName(value)));
      return AppendValue(runtime, out, value);
    case 'q':
      if (!value.is_string()) Raise(fmt::format("printf: %q of type {}", KindName(value)));
      return jinja::AppendJson(runtime, out, value, CompactJson());
    default:
      Raise(fmt::format("printf: the verb %{} is not supported; %s, %v, %d, %t and %q are", verb));
  }
}

Value Printf(Runtime& runtime, Arguments arguments) {
  if (!arguments[0].is_string()) Raise("printf: the format is not a string");
  const jinja::Text& format = arguments[0].as_text();
  const std::string_view bytes = format.bytes();
  TextBuilder out = runtime.NewText();
  size_t next = 1;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.Append(format, at, percent);
    if (percent == bytes.size()) break;
    if (percent + 1 == bytes.size()) Raise("printf: the format ends with %");
    const char verb = bytes[percent + 1];
    at = percent + 2;
    if (verb == '%') {
      out.Append("%");
      continue;
    }
    if (next == arguments.size()) Raise("printf: more verbs than arguments");
    AppendVerb(runtime, out, verb, arguments[next++]);
  }
  if (next != arguments.size()) Raise("printf: more arguments than verbs");
  return Value(std::move(out).Finish());
}

Value Json(Runtime& runtime, Arguments arguments) {
  TextBuilder out = runtime.NewText();
  jinja::AppendJson(runtime, out, arguments[0], CompactJson());
  return Value(std::move(out).Finish());
}

std::string_view TypeScriptName(std::string_view type) {
  using Pair = std::pair<std::string_view, std::string_view>;
  constexpr auto kNames = std::to_array<Pair>({{"string", "string"},
                                               {"number", "number"},
                                               {"integer", "number"},
                                               {"boolean", "boolean"},
                                               {"array", "any[]"},
                                               {"object", "Record<string, any>"},
                                               {"null", "null"}});
  const auto* found = std::ranges::find(kNames, type, &Pair::first);
  return found == kNames.end() ? "any" : found->second;
}

void AppendTypeScript(Runtime& runtime, TextBuilder& out, const Value& schema) {
  const jinja::DepthGuard guard(runtime.budget());
  runtime.budget().Step();
  const auto member = [&](const char* name) -> const Value* {
    return schema.is_dict() ? schema.as_dict().Find(std::string_view(name)) : nullptr;
  };
  const auto append_all = [&](const Value& list, auto append) {
    for (size_t i = 0; i < list.as_list().items.size(); ++i) {
      if (i > 0) out.Append(" | ");
      append(list.as_list().items[i]);
    }
  };
  const auto append_type = [&](const Value& type) {
    out.Append(type.is_string() ? TypeScriptName(type.as_view()) : "any");
  };
  const Value* any_of = member("anyOf");
  const Value* type = member("type");
  if (any_of != nullptr && any_of->is_list() && IsTrue(*any_of)) {
    append_all(*any_of, [&](const Value& one) { AppendTypeScript(runtime, out, one); });
  } else if (type != nullptr && type->is_list() && IsTrue(*type)) {
    append_all(*type, append_type);
  } else {
    append_type(type != nullptr ? *type : Value());
  }
}

// The TypeScript type of a tool's parameter, from its JSON Schema.
Value ToTypeScriptType(Runtime& runtime, Arguments arguments) {
  TextBuilder out = runtime.NewText();
  AppendTypeScript(runtime, out, arguments[0]);
  return Value(std::move(out).Finish());
}

Value Date(Runtime& runtime, int days) {
  std::tm day = runtime.now();
  day.tm_mday += days;
  day.tm_hour = 12;  // no change of the clocks moves this to another day
  day.tm_isdst = -1;
  if (day.tm_year != 0) std::mktime(&day);
  return runtime.MakeString(
      fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday));
}
Value CurrentDate(Runtime& runtime, Arguments) { return Date(runtime, 0); }
Value YesterdayDate(Runtime& runtime, Arguments) { return Date(runtime, -1); }

constexpr auto kFunctions = std::to_array<Function>({
    {"and", 1, kMany, nullptr, Function::Lazy::kAnd},
    {"or", 1, kMany, nullptr, Function::Lazy::kOr},
    {"not", 1, 1, Not},
    {"eq", 2, kMany, Eq},
    {"ne", 2, 2, Ne},
    {"lt", 2, 2, Lt},
    {"le", 2, 2, Le},
    {"gt", 2, 2, Gt},
    {"ge", 2, 2, Ge},
    {"index", 1, kMany, Index},
    {"len", 1, 1, Len},
    {"slice", 1, 3, SliceOf},
    {"print", 0, kMany, Print},
    {"println", 0, kMany, Println},
    {"printf", 1, kMany, Printf},
    {"json", 1, 1, Json},
    {"currentDate", 0, 0, CurrentDate},
    {"yesterdayDate", 0, 0, YesterdayDate},
    {"toTypeScriptType", 1, 1, ToTypeScriptType},
});

}  // namespace

const Function* FindFunction(std::string_view name) {
  const auto* found = std::ranges::find(kFunctions, name, &Function::name);
  return found == kFunctions.end() ? nullptr : found;
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kDouble:
      return value.as_double() != 0;
    case Kind::kString:
    case Kind::kList:
    case Kind::kDict:
      return LengthOf(value) > 0;
    default:
      return false;
  }
}

void AppendValue(Runtime& runtime, TextBuilder& out, const Value& value) {
  runtime.budget().Step();
  switch (value.kind()) {
    case Kind::kString:
      return out.Append(value.as_text());
    case Kind::kBool:
      return out.Append(value.as_bool() ? "true" : "false");
    case Kind::kInt:
    case Kind::kDouble:
    case Kind::kList:
    case Kind::kDict:
      return jinja::AppendJson(runtime, out, value, CompactJson());
    default:
      return;
  }
}

std::string_view KindName(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kDouble:
      return "float";
    case Kind::kString:
      return "string";
    case Kind::kList:
      return "slice";
    case Kind::kDict:
      return "map";
    default:
      return "nil";
  }
}

}  // namespace quire::runner::gotemplate
