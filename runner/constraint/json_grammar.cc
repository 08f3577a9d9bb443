#include "runner/constraint/json_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/json/read.h"
#include "runner/constraint/automaton.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/numbers.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr uint32_t kIndentMax = 32;  // columns
constexpr uint32_t kTabsMax = 16;

// Items separated by commas, of any number.
ExprRef List(std::string_view open, const ExprRef& item, std::string_view close, const JsonStyle& style) {
  const ExprRef items = Sequence({item, Repeat(Sequence({MemberSeparator(style), item}), 0, std::nullopt)});
  return Sequence({Literal(open), Space(style), Optional(Sequence({items, Space(style)})), Literal(close)});
}

ExprRef ListOf(std::string_view open, const std::vector<ExprRef>& items, std::string_view close,
               const JsonStyle& style) {
  std::vector<ExprRef> exprs = {Literal(open), Space(style)};
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) exprs.push_back(MemberSeparator(style));
    exprs.push_back(items[i]);
  }
  if (!items.empty()) exprs.push_back(Space(style));
  exprs.push_back(Literal(close));
  return Sequence(std::move(exprs));
}

// What every request uses: the first one does not pay for it.
template <class Make>
ExprRef MakeShared(Make make) {
  const WorkBudget::Exempt once_per_process;
  return make();
}

// The same, as an automaton: copies of it are smaller.
ExprRef Determined(const ExprRef& expr) {
  auto dfa = BuildDfa(*expr);
  return dfa ? Automaton(std::make_shared<const Dfa>(std::move(*dfa))) : expr;
}

}  // namespace

ExprRef Space(const JsonStyle& style) {
  if (!style.spaces) return Nothing();
  static const ExprRef space = MakeShared([] {
    const ExprRef indentation =
        Choice({Repeat(Literal(" "), 0, kIndentMax), Repeat(Literal("\t"), 0, kTabsMax)});
    return Determined(
        Optional(Choice({Literal(" "), Sequence({Optional(Literal("\r")), Literal("\n"), indentation})})));
  });
  return space;
}

ExprRef JsonString() {
  static const ExprRef string = MakeShared([] {
    return Determined(Sequence({Literal("\""), Repeat(AnyJsonCharacter(), 0, std::nullopt), Literal("\"")}));
  });
  return string;
}

ExprRef PlainJsonString() {
  static const ExprRef string = MakeShared([] {
    const ExprRef character = JsonCharacter(CodePoints::All());
    return Determined(Sequence({Literal("\""), Repeat(character, 0, std::nullopt), Literal("\"")}));
  });
  return string;
}

ExprRef JsonStringOf(std::string_view text) { return Literal(api::DumpJson(api::Json(std::string(text)))); }

ExprRef JsonValueOf(const api::Json& value, const JsonStyle& style) {
  std::vector<ExprRef> items;
  if (value.is_object()) {
    for (const auto& [name, member] : value.get_ref<const api::Json::object_t&>()) {
      items.push_back(Member(JsonStringOf(name), JsonValueOf(member, style), style));
    }
    return ListOf("{", items, "}", style);
  }
  if (value.is_array()) {
    for (const api::Json& item : value) items.push_back(JsonValueOf(item, style));
    return ListOf("[", items, "]", style);
  }
  if (value.is_null()) return Literal(style.null_text);
  if (value.is_boolean()) return Literal(value.get<bool>() ? style.true_text : style.false_text);
  return Literal(api::DumpJson(value));
}

AnyJson::AnyJson(GrammarBuilder& builder, const JsonStyle& style) {
  const uint32_t object_rule = builder.Declare();
  const uint32_t array_rule = builder.Declare();
  object = Call(object_rule);
  array = Call(array_rule);
  static const ExprRef number = MakeShared([] { return Determined(NumberWithin({}, NumberKind::kAny)); });
  const ExprRef text = JsonString();
  value = Choice({text, number, Literal(style.true_text), Literal(style.false_text), Literal(style.null_text),
                  object, array});
  builder.Define(object_rule, List("{", Member(text, value, style), "}", style));
  builder.Define(array_rule, List("[", value, "]", style));
}

ExprRef Member(ExprRef key, ExprRef value, const JsonStyle& style) {
  const ExprRef blank = style.spaces ? Optional(Literal(" ")) : Nothing();
  return Sequence({std::move(key), blank, Literal(":"), blank, std::move(value)});
}

ExprRef MemberSeparator(const JsonStyle& style) {
  static const ExprRef spaced = Sequence({Optional(Literal(" ")), Literal(","), Space({})});
  static const ExprRef compact = Literal(",");
  return style.spaces ? spaced : compact;
}

// No more than a model has written when its answer begins or ends.
ExprRef Document(ExprRef value, const JsonStyle& style) {
  if (!style.spaces) return value;
  static const ExprRef around = Optional(
      Choice({Bytes({{'\t', '\t'}, {' ', ' '}}), Sequence({Literal("\n"), Optional(Literal(" "))})}));
  return Sequence({around, std::move(value), around});
}

}  // namespace quire::runner::constraint
