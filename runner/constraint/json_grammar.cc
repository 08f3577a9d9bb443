#include "runner/constraint/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
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
constexpr uint32_t kSignificantDigits = 15;  // decimals of this many digits differ as float64

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

// After `before` significant digits: more of them, at most kSignificantDigits, the last of which is not 0.
ExprRef SignificantDigits(uint32_t before) {
  const ExprRef last = Byte('1', '9');
  const uint32_t left = kSignificantDigits - before;
  if (before > 0) return Sequence({Repeat(Digit(), 0, left - 1), last});
  return Sequence({Byte('1', '9'), Optional(Sequence({Repeat(Digit(), 0, left - 2), last}))});
}

// An integer and a fraction, of at most kSignificantDigits together.
ExprRef WithFraction(uint32_t before) {
  const ExprRef point = Sequence({Literal("."), SignificantDigits(before)});
  if (before == 0) return Sequence({Byte('1', '9'), WithFraction(1)});
  if (before + 1 == kSignificantDigits) return point;
  return Choice({point, Sequence({Digit(), WithFraction(before + 1)})});
}

// From 1e+21 on, and below 0.000001.
ExprRef WithExponent() {
  const ExprRef mantissa =
      Sequence({Byte('1', '9'), Optional(Sequence({Literal("."), SignificantDigits(1)}))});
  const ExprRef two = Sequence({Byte('1', '9'), Digit()});
  const ExprRef large =
      Choice({Sequence({Literal("2"), Byte('1', '9')}), Sequence({Byte('3', '9'), Digit()})});
  return Sequence({mantissa, Choice({Sequence({Literal("e+"), large}),
                                     Sequence({Literal("e-"), Choice({Byte('7', '9'), two})})})});
}

// The digits of a number below 10, times a power of ten, as ECMAScript's Number::toString() puts them.
std::string Positional(std::string digits, int exponent) {
  constexpr int kPositionalMax = 21;
  const auto count = static_cast<int>(digits.size());
  const int before = exponent + 1;  // digits before the point
  if (before > kPositionalMax || before <= -6) {
    if (count > 1) digits.insert(1, ".");
    return fmt::format("{}e{}{}", digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (before <= 0) return "0." + std::string(static_cast<size_t>(-before), '0') + digits;
  if (before >= count) return digits + std::string(static_cast<size_t>(before - count), '0');
  return digits.insert(static_cast<size_t>(before), ".");
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
  return Literal(style.spaces ? api::DumpJson(value) : PlainNumberOf(value));
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

ExprRef PlainNumber() {
  static const ExprRef number = MakeShared([] {
    const ExprRef tiny = Sequence({Literal("0."), Repeat(Literal("0"), 0, 5), SignificantDigits(0)});
    const ExprRef magnitude = Choice({WithFraction(0), tiny, WithExponent()});
    return Determined(Choice({AnyInteger(), Sequence({Optional(Literal("-")), magnitude})}));
  });
  return number;
}

std::string PlainNumberOf(const api::Json& number) {
  if (!number.is_number_float()) return api::DumpJson(number);
  const auto value = number.get<double>();
  if (value == 0) return "0";
  std::array<char, 32> text{};  // d[.ddd]e[+-]dd
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), std::abs(value), std::chars_format::scientific);
  const std::string_view shortest(text.data(), static_cast<size_t>(end.ptr - text.data()));
  const size_t mark = shortest.find('e');
  std::string digits(shortest.substr(0, mark));
  std::erase(digits, '.');
  int exponent = 0;
  const bool negative = shortest[mark + 1] == '-';
  std::from_chars(shortest.data() + mark + 2, end.ptr, exponent);
  return (value < 0 ? "-" : "") + Positional(digits, negative ? -exponent : exponent);
}

AnyJson::AnyJson(GrammarBuilder& builder, const JsonStyle& style) {
  const uint32_t object_rule = builder.Declare();
  const uint32_t array_rule = builder.Declare();
  object = Call(object_rule);
  array = Call(array_rule);
  const ExprRef text = style.spaces ? JsonString({}) : PlainJsonString({});
  value = Choice({text, style.spaces ? AnyNumber() : PlainNumber(), Literal(style.true_text),
                  Literal(style.false_text), Literal(style.null_text), object, array});
  builder.Define(object_rule, List("{", Member(text, value, style), "}", style));
  builder.Define(array_rule, List("[", value, "]", style));
}

ExprRef Member(ExprRef key, ExprRef value, const JsonStyle& style) {
  return Sequence({std::move(key), Blank(style), Literal(":"), Blank(style), std::move(value)});
}

ExprRef MemberSeparator(const JsonStyle& style) {
  static const ExprRef spaced = Sequence({Blank({}), Literal(","), Indent({})});
  static const ExprRef compact = Literal(",");
  return style.spaces ? spaced : compact;
}

ExprRef Document(ExprRef value, const JsonStyle& style) {
  if (!style.spaces) return value;
  const ExprRef around = Optional(
      Choice({Bytes({{' ', ' '}, {'\t', '\t'}}), Sequence({Literal("\n"), Optional(Literal(" "))})}));
  return Sequence({around, std::move(value), around});
}

}  // namespace quire::runner::constraint
