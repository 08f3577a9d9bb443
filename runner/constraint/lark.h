// The grammar notation of Lark, as the custom tools of /v1/responses have it: rules and terminals over
// strings, regular expressions, groups, alternatives and repetitions. The rule `start` is the whole text.
#pragma once

#include <string_view>

#include "api/base/error.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

// Texts are what the rules derive: a terminal need not be the longest that a lexer would find, and priorities
// say nothing. `encode` writes one character of a set: Utf8 or JsonCharacter. Errors name the line:
// kInvalidArgument where the grammar is broken, kUnsupported for templates, `%declare`, `%extend`,
// `%override`, imports that are not of `common`, regular expressions that Regex() does not support, and what
// is too large.
api::Result<ExprRef> Lark(std::string_view grammar, GrammarBuilder& builder,
                          ExprRef (*encode)(const CodePoints& set));

}  // namespace quire::runner::constraint
