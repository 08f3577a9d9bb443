// Grammar expressions for JSON text.
//
// A JsonStyle without spaces gives what JSON.stringify writes. With spaces white space is bounded, so that a model
// cannot go on with it forever: a space before ',' and ':' and after ':', and elsewhere a blank or one line break with
// an indentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/json/type.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

// How a text writes JSON.
struct JsonStyle {
  std::string_view null_text = "null";
  std::string_view true_text = "true";
  std::string_view false_text = "false";
  bool spaces = true;  // without them every string and every number is written in one way, too
};
inline constexpr JsonStyle kPythonStyle = {"None", "True", "False"};
inline constexpr JsonStyle kCompactStyle = {.spaces = false};

ExprRef Blank(const JsonStyle& style);   // at most a space
ExprRef Indent(const JsonStyle& style);  // at most a blank, or a line break and an indentation

struct Lengths {
  uint32_t min = 0;
  std::optional<uint32_t> max = {};
};

inline constexpr uint32_t kCharactersMax = 1000;  // of strings whose characters are counted

// A string with its quotes, of this many characters; of more than kCharactersMax none. REQUIRES: min <=
// kCharactersMax.
ExprRef JsonString(Lengths lengths);
// The same, every text in one way: as DumpJson() does.
ExprRef PlainJsonString(Lengths lengths);
// A string of exactly this text, written as DumpJson() does.
ExprRef JsonStringOf(std::string_view text);
// Exactly this value, members in its order.
ExprRef JsonValueOf(const api::Json& value, const JsonStyle& style = {});

// -0 is no integer here; at most 18 digits, so that every one fits 64 bits.
ExprRef AnyInteger();
// With a fraction and an exponent that keep it within a float64.
ExprRef AnyNumber();
// Of those each in one way, as JSON.stringify writes it: integers of at most 18 digits, others of at most 15 significant
// ones, which no float64 confuses; with an exponent only from 1e+21 on and below 0.000001.
ExprRef PlainNumber();
// A number of a schema in that way.
std::string PlainNumberOf(const api::Json& number);

// Any value; its objects and arrays are rules of the builder.
struct AnyJson {
  explicit AnyJson(GrammarBuilder& builder, const JsonStyle& style = {});
  ExprRef value;
  ExprRef object;
  ExprRef array;
};

// '{' or '[' and what follows up to the matching bracket. `key` is a string with its quotes.
ExprRef Member(ExprRef key, ExprRef value, const JsonStyle& style);
ExprRef MemberSeparator(const JsonStyle& style);  // ',' and the space around it

// A document: the value, with at most a blank or a line break and a space on either side.
ExprRef Document(ExprRef value, const JsonStyle& style);

}  // namespace quire::runner::constraint
