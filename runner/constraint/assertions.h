// Assertions of a regular expression that look at what stands before and behind them: they are bytes of an
// expression until it is resolved.
#pragma once

#include "api/base/error.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

enum class Assertion : uint8_t { kBegin, kEnd, kWordBoundary, kNoWordBoundary };

ExprRef AssertionExpr(Assertion assertion);

// The texts of `expr` in which every assertion holds, without the assertions. `in_json`: the texts are those
// of JSON strings, as JsonCharacter() writes them.
api::Result<ExprRef> ResolveAssertions(const ExprRef& expr, bool in_json);

}  // namespace quire::runner::constraint
