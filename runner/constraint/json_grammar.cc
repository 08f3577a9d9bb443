#include "runner/constraint/json_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/json/read.h"
#include "runner/constraint/automaton.h"
#include "runner/constraint/code_points.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr uint32_t kIndentMax = 24;  // columns
constexpr uint32_t kAnyCharactersMax =
    256;  // longer strings have one spelling of each, and few control characters
constexpr uint32_t kIntegerDigits = 18;
constexpr uint32_t kFractionDigits = 18;
constexpr uint32_t kExponentDigits = 2;

ExprRef Digit() { return Byte('0', '9'); }

ExprRef Magnitude() {
  return Choice({Literal("0"), Sequence({Byte('1', '9'), Repeat(Digit(), 0, kIntegerDigits - 1)})});
}

// Items separated by commas, of any number.
ExprRef List(std::string_view open, const ExprRef& item, std::string_view close, const JsonStyle& style) {
  const ExprRef items = Sequence({item, Repeat(Sequence({MemberSeparator(style), item}), 0, std::nullopt)});
  return Sequence({Literal(open), Indent(style), Optional(Sequence({items, Indent(style)})), Literal(close)});
}

ExprRef ListOf(std::string_view open, const std::vector<ExprRef>& items, std::string_view close,
               const JsonStyle& style) {
  std::vector<ExprRef> exprs = {Literal(open), Indent(style)};
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) exprs.push_back(MemberSeparator(style));
    exprs.push_back(items[i]);
  }
  if (!items.empty()) exprs.push_back(Indent(style));
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

ExprRef Blank(const JsonStyle& style) {
  if (!style.spaces) return Nothing();
  static const ExprRef blank = Optional(Literal(" "));
  return blank;
}

ExprRef Indent(const JsonStyle& style) {
  if (!style.spaces) return Nothing();
  static const ExprRef indent =
      Optional(Choice({Bytes({{' ', ' '}, {'\t', '\t'}}),
                       Sequence({Literal("\n"), Repeat(Bytes({{' ', ' '}, {'\t', '\t'}}), 0, kIndentMax)})}));
  return indent;
}

ExprRef JsonString(Lengths lengths) {
  static const ExprRef any = MakeShared([] { return Determined(AnyJsonCharacter()); });
  static const ExprRef light = MakeShared([] {
    return Determined(JsonCharacter(CodePoints({{'\t', '\n'}, {0x20, 0x10FFFF}})));
  });
  const bool counts_many = lengths.min > kAnyCharactersMax || lengths.max.value_or(0) > kAnyCharactersMax;
  const ExprRef& character = counts_many ? light : any;
  if (lengths.max) lengths.max = std::min(*lengths.max, kCharactersMax);
  return Sequence({Literal("\""), Repeat(character, lengths.min, lengths.max), Literal("\"")});
}

ExprRef PlainJsonString(Lengths lengths) {
  static const ExprRef character = MakeShared([] { return Determined(JsonCharacter(CodePoints::All())); });
  if (lengths.max) lengths.max = std::min(*lengths.max, kCharactersMax);
  return Sequence({Literal("\""), Repeat(character, lengths.min, lengths.max), Literal("\"")});
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

ExprRef AnyInteger() {
  return Choice({Literal("0"),
                 Sequence({Optional(Literal("-")), Byte('1', '9'), Repeat(Digit(), 0, kIntegerDigits - 1)})});
}

ExprRef AnyNumber() {
  const ExprRef fraction = Sequence({Literal("."), Repeat(Digit(), 1, kFractionDigits)});
  const ExprRef exponent =
      Sequence({Bytes({{'E', 'E'}, {'e', 'e'}}), Optional(Bytes({{'+', '+'}, {'-', '-'}})),
                Repeat(Digit(), 1, kExponentDigits)});
  return Sequence({Optional(Literal("-")), Magnitude(), Optional(fraction), Optional(exponent)});
}

AnyJson::AnyJson(GrammarBuilder& builder, const JsonStyle& style) {
  const uint32_t object_rule = builder.Declare();
  const uint32_t array_rule = builder.Declare();
  object = Call(object_rule);
  array = Call(array_rule);
  const ExprRef text = style.spaces ? JsonString({}) : PlainJsonString({});
  value = Choice({text, AnyNumber(), Literal(style.true_text), Literal(style.false_text),
                  Literal(style.null_text), object, array});
  builder.Define(object_rule, List("{", Member(text, value, style), "}", style));
  builder.Define(array_rule, List("[", value, "]", style));
}

ExprRef Member(ExprRef key, ExprRef value, const JsonStyle& style) {
  return Sequence({std::move(key), Blank(style), Literal(":"), Blank(style), std::move(value)});
}

ExprRef MemberSeparator(const JsonStyle& style) {
  return Sequence({Blank(style), Literal(","), Indent(style)});
}

ExprRef Document(ExprRef value, const JsonStyle& style) {
  if (!style.spaces) return value;
  const ExprRef around = Optional(
      Choice({Bytes({{' ', ' '}, {'\t', '\t'}}), Sequence({Literal("\n"), Optional(Literal(" "))})}));
  return Sequence({around, std::move(value), around});
}

}  // namespace quire::runner::constraint
