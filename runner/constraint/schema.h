// JSON Schema (draft 2020-12 and the older spellings of its keywords) to grammar expressions.
//
// The output is a subset of what the schema allows: properties come in the order they are
// declared in (others after them), keys and constants are written in one way, integers without exponent. A
// keyword that is not known is an annotation; one that is and cannot be enforced is an error:
// docs/structured-output.md lists them.
#pragma once

#include "api/base/error.h"
#include "api/json/type.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/json_grammar.h"

namespace quire::runner::constraint {

// What becomes of a keyword that cannot be enforced: an error, or it is left out, and the builder told.
enum class Enforcement : uint8_t { kStrict, kLoose };

// A value that satisfies `schema`, without white space around it. Its objects and arrays become rules of the
// book. Errors name the place in the schema: kUnsupported, kInvalidArgument (broken schema).
api::Result<ExprRef> JsonSchema(const api::Json& schema, GrammarBuilder& builder, const JsonStyle& style = {},
                                Enforcement enforcement = Enforcement::kStrict);

// The arguments of a call in Python (`city="Paris", days=3`, True, False and None for JSON's literals) whose
// names and values are such an object. kUnsupported also of objects that are more than named properties, or
// have names that are no identifiers.
api::Result<ExprRef> PythonArguments(const api::Json& schema, GrammarBuilder& builder,
                                     Enforcement enforcement);

// What stands around the arguments of a call that are written between tags.
struct ArgumentTags {
  ExprRef before_name, before_value, after_value;
  ExprRef before_text;  // before_value of a value that is a text
  ExprRef text;         // any text that holds no end tag, with what comes after a value
};

// The arguments of a call between tags: a string as it is, any other value as JSON. kUnsupported also of
// objects that are more than named properties, and of properties of which a reader could not tell from a text
// which value it is.
api::Result<ExprRef> TaggedArguments(const api::Json& schema, GrammarBuilder& builder,
                                     const ArgumentTags& tags, Enforcement enforcement);

}  // namespace quire::runner::constraint
