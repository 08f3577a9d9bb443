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
    const ExprRef blank = Bytes({{'\t', '\t'}, {' ', ' '}});
    const ExprRef line = Sequence({Optional(Literal("\r")), Literal("\n")});
    return Determined(Sequence(
        {Repeat(blank, 0, 2), Optional(Sequence({line, Optional(line), Repeat(blank, 0, kIndentMax)}))}));
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
  return Sequence({std::move(key), blank, Literal(":"), Space(style), std::move(value)});
}

ExprRef MemberSeparator(const JsonStyle& style) {
  static const ExprRef spaced = Sequence({Space({}), Literal(","), Space({})});
  static const ExprRef compact = Literal(",");
  return style.spaces ? spaced : compact;
}

ExprRef Document(ExprRef value, const JsonStyle& style) {
  return Sequence({Space(style), std::move(value), Space(style)});
}

}  // namespace quire::runner::constraint
