// GBNF, the grammar notation of llama.cpp: rules `name ::= ...` over literals, character sets, groups,
// alternatives and repetitions. The rule `root` is the whole text.
#pragma once

#include <string_view>

#include "api/base/error.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

// Recursive rules become rules of the builder, others are copied where they are used. kInvalidArgument names
// the line and what is wrong there, or the rule that is used and not defined; kUnsupported: references to
// tokens (`<name>`, `<[id]>`), and what is too large.
api::Result<ExprRef> Gbnf(std::string_view grammar, GrammarBuilder& builder);

}  // namespace quire::runner::constraint
