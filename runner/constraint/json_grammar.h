// Grammar expressions for JSON text.
//
// White space is bounded, so that a model cannot go on with it forever: a space before ',' and ':' and after
// ':', and elsewhere a blank or one line break with an indentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "api/json/type.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

ExprRef Blank();   // at most a space
ExprRef Indent();  // at most a blank, or a line break and an indentation

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
// How a text spells the JSON literals.
struct LiteralSpelling {
  std::string_view null_text = "null";
  std::string_view true_text = "true";
  std::string_view false_text = "false";
};
inline constexpr LiteralSpelling kPythonLiterals = {"None", "True", "False"};

// Exactly this value, members in its order.
ExprRef JsonValueOf(const api::Json& value, const LiteralSpelling& literals = {});

// -0 is no integer here; at most 18 digits, so that every one fits 64 bits.
ExprRef AnyInteger();
// With a fraction and an exponent that keep it within a float64.
ExprRef AnyNumber();

// Any value; its objects and arrays are rules of the builder.
struct AnyJson {
  explicit AnyJson(GrammarBuilder& builder, const LiteralSpelling& literals = {});
  ExprRef value;
  ExprRef object;
  ExprRef array;
};

// '{' or '[' and what follows up to the matching bracket. `key` is a string with its quotes.
ExprRef Member(ExprRef key, ExprRef value);
ExprRef MemberSeparator();  // ',' and the space around it

// A document: the value, with at most a blank or a line break and a space on either side.
ExprRef Document(ExprRef value);

}  // namespace quire::runner::constraint
