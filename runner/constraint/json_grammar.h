// Grammar expressions for JSON text.
//
// White space between two tokens is bounded, so that a model cannot go on with it forever; a JsonStyle
// without spaces has none.
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
  bool spaces = true;
};
inline constexpr JsonStyle kPythonStyle = {"None", "True", "False"};

// At most a blank, or a line break and up to 32 blanks or 16 tabs. Colons have at most a blank on either
// side.
ExprRef Space(const JsonStyle& style);

// A string with its quotes.
ExprRef JsonString();
// The same, every text in one way: as DumpJson() does.
ExprRef PlainJsonString();
// A string of exactly this text, written as DumpJson() does.
ExprRef JsonStringOf(std::string_view text);
// Exactly this value, members in its order.
ExprRef JsonValueOf(const api::Json& value, const JsonStyle& style = {});

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

// A document: the value with space around it.
ExprRef Document(ExprRef value, const JsonStyle& style);

}  // namespace quire::runner::constraint
