// Selecting and ordering candidate tokens. Everywhere: higher logit first, lower id first among equals.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "api/error.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::sampler {

inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The highest logit, and that all of them are numbers below +inf and some above -inf; else kInternal.
api::Result<float> CheckedMaximum(std::span<const float> logits);

// Lowest id with this logit. REQUIRES: there is one.
TokenId FirstOf(std::span<const float> logits, float logit);

// Fills `out` with the `count` best, in order; those of -inf are left out. One pass: memory is some multiple
// of count, and few logits of a large vocabulary get beyond a comparison. REQUIRES: checked, count > 0.
void SelectBest(std::span<const float> logits, size_t count, std::vector<Candidate>& out);

// A list of candidates of which a growing beginning is in order.
class PartlySorted {
 public:
  PartlySorted(std::vector<Candidate>& candidates, size_t sorted)
      : candidates_(candidates), sorted_(sorted) {}

  // The candidate at `index` of the whole order. REQUIRES: index < size.
  const Candidate& At(size_t index);

 private:
  std::vector<Candidate>& candidates_;
  size_t sorted_;
};

}  // namespace quire::runner::sampler
