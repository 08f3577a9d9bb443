// Regular expressions of JSON schemas: those of ECMA-262 without back references, and what Python and others
// write beside.
#pragma once

#include <cstdint>
#include <string_view>

#include "api/base/error.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

enum class Anchoring : uint8_t {
  kSearch,  // the text contains a match, as JSON Schema's `pattern`; ^ and $ anchor it
  kWhole,   // the text is a match
};

// What '.' is.
enum class Dot : uint8_t {
  kNoLineEnd,   // any character that ends no line, as ECMA-262 has it
  kNoLineFeed,  // any but \n, as Python and Rust have it
};

// `encode` writes one character of a set: Utf8 or JsonCharacter. Look-around is left out and sets `loosened`;
// where that is null, it is kUnsupported. kInvalidArgument when the pattern is broken, kUnsupported when it
// uses what automata cannot do or is too large; the messages name what and where.
api::Result<ExprRef> Regex(std::string_view pattern, Anchoring anchoring,
                           ExprRef (*encode)(const CodePoints& set), bool* loosened = nullptr,
                           Dot dot = Dot::kNoLineEnd);

}  // namespace quire::runner::constraint
