// Numbers within bounds, exactly: no text outside them can be written, and any other can, whatever its
// digits.
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
  static Bound BoundOf(const api::Json& number);  // inclusive
  void Raise(const Bound& bound);                 // min to at least this
  void Lower(const Bound& bound);
  bool Contain(const api::Json& number) const;
};

enum class NumberKind : uint8_t {
  kInteger,  // digits only
  kAny,      // with a fraction and an exponent
};

// Numbers within the bounds, of any digits. An exponent follows what is within the bounds without it, too, so
// that no digit leaves an exponent as the only way on; it has a magnitude below 300, so that most numbers fit
// a float64. Digits that leave a number outside its bounds end after some: a value on an exclusive bound does
// not get zeros without end. Never() when there is none.
ExprRef NumberWithin(const NumberBounds& bounds, NumberKind kind);

// Those numbers in one way each: without exponent and without zeros that say nothing, integers of at most 18
// digits, others of so few that all of them differ as float64. kUnsupported when the bounds of those have
// more digits than that.
api::Result<Dfa> DistinctNumberWithin(const NumberBounds& bounds, NumberKind kind);
// The number in that way.
std::string PlainDecimal(const api::Json& number);

}  // namespace quire::runner::constraint
