// Sets of Unicode characters, and the bytes that write them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

inline constexpr uint32_t kCodePointLast = 0x10FFFF;

// Characters of texts: surrogates are none.
class CodePoints {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;  // inclusive
  };
  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges) : CodePoints(std::vector<Range>(ranges)) {}
  // In any order; they may overlap. Sorts all at once, which counts as work: a client chooses how many there
  // are.
  explicit CodePoints(std::vector<Range> ranges);
  static CodePoints All();

  CodePoints Complement() const;
  CodePoints Without(const CodePoints& other) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // ascending, apart

 private:
  std::vector<Range> ranges_;
};

// One character of the set as UTF-8.
ExprRef Utf8(const CodePoints& set);
// One character of the set inside a JSON string, written the one way that a printer would choose: itself, or
// the short escape where it must be escaped.
ExprRef JsonCharacter(const CodePoints& set);
// One character inside a JSON string, in any way that JSON has: surrogate escapes come as pairs.
ExprRef AnyJsonCharacter();

}  // namespace quire::runner::constraint
