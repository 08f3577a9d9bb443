#include "runner/constraint/json_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/json/read.h"
#include "runner/constraint/automaton.h"
#include "runner/constraint/code_points.h"

namespace quire::runner::constraint {
namespace {

constexpr uint32_t kIndentMax = 24;  // columns
constexpr uint32_t kAnyCharactersMax =
    256;  // longer strings have one spelling of each, and few control characters
constexpr uint32_t kIntegerDigits = 18;
constexpr uint32_t kFractionDigits = 18;
constexpr uint32_t kExponentDigits = 2;

PartRef Digit() { return Byte('0', '9'); }

PartRef Magnitude() {
  return Choice({Literal("0"), Sequence({Byte('1', '9'), Repeat(Digit(), 0, kIntegerDigits - 1)})});
}

// Items separated by commas, of any number.
PartRef List(std::string_view open, const PartRef& item, std::string_view close) {
  const PartRef items = Sequence({item, Repeat(Sequence({MemberSeparator(), item}), 0, std::nullopt)});
  return Sequence({Literal(open), Indent(), Optional(Sequence({items, Indent()})), Literal(close)});
}

PartRef ListOf(std::string_view open, const std::vector<PartRef>& items, std::string_view close) {
  std::vector<PartRef> parts = {Literal(open), Indent()};
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) parts.push_back(MemberSeparator());
    parts.push_back(items[i]);
  }
  if (!items.empty()) parts.push_back(Indent());
  parts.push_back(Literal(close));
  return Sequence(std::move(parts));
}

// The same, as an automaton: copies of it are smaller.
PartRef Determined(const PartRef& part) {
  auto dfa = BuildDfa(*part);
  return dfa ? Automaton(std::make_shared<const Dfa>(std::move(*dfa))) : part;
}

}  // namespace

PartRef Blank() {
  static const PartRef blank = Optional(Literal(" "));
  return blank;
}

PartRef Indent() {
  static const PartRef indent =
      Optional(Choice({Bytes({{' ', ' '}, {'\t', '\t'}}),
                       Sequence({Literal("\n"), Repeat(Bytes({{' ', ' '}, {'\t', '\t'}}), 0, kIndentMax)})}));
  return indent;
}

PartRef JsonString(Lengths lengths) {
  static const PartRef any = Determined(AnyJsonCharacter());
  static const PartRef light = Determined(JsonCharacter(CodePoints({{'\t', '\n'}, {0x20, 0x10FFFF}})));
  const bool counts_many = lengths.min > kAnyCharactersMax || lengths.max.value_or(0) > kAnyCharactersMax;
  const PartRef& character = counts_many ? light : any;
  if (lengths.max) lengths.max = std::min(*lengths.max, kCharactersMax);
  return Sequence({Literal("\""), Repeat(character, lengths.min, lengths.max), Literal("\"")});
}

PartRef PlainJsonString(Lengths lengths) {
  static const PartRef character = Determined(JsonCharacter(CodePoints::All()));
  if (lengths.max) lengths.max = std::min(*lengths.max, kCharactersMax);
  return Sequence({Literal("\""), Repeat(character, lengths.min, lengths.max), Literal("\"")});
}

PartRef JsonStringOf(std::string_view text) { return Literal(api::DumpJson(api::Json(std::string(text)))); }

PartRef JsonValueOf(const api::Json& value, const Words& words) {
  std::vector<PartRef> items;
  if (value.is_object()) {
    for (const auto& [name, member] : value.get_ref<const api::Json::object_t&>()) {
      items.push_back(Member(JsonStringOf(name), JsonValueOf(member, words)));
    }
    return ListOf("{", items, "}");
  }
  if (value.is_array()) {
    for (const api::Json& item : value) items.push_back(JsonValueOf(item, words));
    return ListOf("[", items, "]");
  }
  if (value.is_null()) return Literal(words.null);
  if (value.is_boolean()) return Literal(value.get<bool>() ? words.yes : words.no);
  return Literal(api::DumpJson(value));
}

PartRef AnyInteger() {
  return Choice({Literal("0"),
                 Sequence({Optional(Literal("-")), Byte('1', '9'), Repeat(Digit(), 0, kIntegerDigits - 1)})});
}

PartRef AnyNumber() {
  const PartRef fraction = Sequence({Literal("."), Repeat(Digit(), 1, kFractionDigits)});
  const PartRef exponent =
      Sequence({Bytes({{'E', 'E'}, {'e', 'e'}}), Optional(Bytes({{'+', '+'}, {'-', '-'}})),
                Repeat(Digit(), 1, kExponentDigits)});
  return Sequence({Optional(Literal("-")), Magnitude(), Optional(fraction), Optional(exponent)});
}

AnyJson::AnyJson(RuleBook& rules, const Words& words) {
  const uint32_t object_rule = rules.Declare();
  const uint32_t array_rule = rules.Declare();
  object = Call(object_rule);
  array = Call(array_rule);
  value = Choice({JsonString({}), AnyNumber(), Literal(words.yes), Literal(words.no), Literal(words.null),
                  object, array});
  rules.Define(object_rule, List("{", Member(JsonString({}), value), "}"));
  rules.Define(array_rule, List("[", value, "]"));
}

PartRef Member(PartRef key, PartRef value) {
  return Sequence({std::move(key), Blank(), Literal(":"), Blank(), std::move(value)});
}

PartRef MemberSeparator() { return Sequence({Blank(), Literal(","), Indent()}); }

PartRef Document(PartRef value) {
  const PartRef around = Optional(
      Choice({Bytes({{' ', ' '}, {'\t', '\t'}}), Sequence({Literal("\n"), Optional(Literal(" "))})}));
  return Sequence({around, std::move(value), around});
}

}  // namespace quire::runner::constraint
