// Numbers within bounds, exactly: no text outside them can be written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/base/error.h"
#include "api/json/type.h"
#include "runner/constraint/automaton.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

struct NumberBounds {
  struct Bound {
    double value = 0;
    std::optional<int64_t> integer = {};  // the value, where it was written as one that fits
    bool exclusive = false;
  };
  std::optional<Bound> min = {};
  std::optional<Bound> max = {};

  bool any() const { return min || max; }
  void Raise(const Bound& bound);  // min to at least this
  void Lower(const Bound& bound);
  bool Contain(const api::Json& number) const;
};

// Integers of at most 18 digits within the bounds. Never() when there is none.
ExprRef IntegerWithin(const NumberBounds& bounds);
// Decimals without exponent, of so few digits that all of them differ as float64 and compare as they are
// written. kUnsupported when the bounds have more digits than that.
api::Result<ExprRef> NumberWithin(const NumberBounds& bounds);

// Decimals of NumberWithin() in one way each: without zeros that say nothing. Of numbers without bounds those
// of few enough digits.
api::Result<Dfa> DistinctNumberWithin(const NumberBounds& bounds);
// The number in that way.
std::string PlainDecimal(const api::Json& number);

}  // namespace quire::runner::constraint
