// Multiples of a number, as decimals.
#pragma once

#include <cstdint>
#include <optional>

#include "api/json/type.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

// units / 10^places, with the fewest places.
struct DecimalStep {
  uint32_t units = 1;
  uint32_t places = 0;
};

// Nothing of a number that is not above 0, or has too many digits: each remainder is a state.
std::optional<DecimalStep> DecimalStepOf(const api::Json& number);

// Its multiples: numbers without exponent, of any digits where those are zeros.
ExprRef MultiplesOf(const DecimalStep& step);

}  // namespace quire::runner::constraint
