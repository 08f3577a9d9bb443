// Selecting and ordering candidate tokens. Everywhere: higher logit first, lower id first among equals.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "api/base/error.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::sampler {

inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The highest logit, and that all of them are numbers below +inf and some above -inf; else kInternal. Keeps
// in `maxima` what SelectBest of the same logits wants to know.
api::Result<float> CheckedMaximum(std::span<const float> logits, Maxima& maxima);

// Lowest id with this logit. REQUIRES: there is one.
TokenId FirstOf(std::span<const float> logits, float logit);

// Fills `out` with the `count` best, in order; those of -inf are left out. Memory is some multiple of count,
// and of a large vocabulary only the neighbors of high logits are looked at again. REQUIRES: `maxima` are of
// these logits, count > 0. `spare`: memory for long lists, as below.
void SelectBest(std::span<const float> logits, size_t count, Maxima& maxima, std::vector<Candidate>& out,
                std::vector<Candidate>& spare);

// Puts all in order, in linear time. `spare` grows to the same size.
void SortBest(std::vector<Candidate>& candidates, std::vector<Candidate>& spare);

// A list of candidates of which a growing beginning is in order.
class PartlySorted {
 public:
  PartlySorted(std::vector<Candidate>& candidates, size_t sorted, std::vector<Candidate>& spare)
      : candidates_(candidates), spare_(spare), sorted_(sorted) {}

  // The candidate at `index` of the whole order. REQUIRES: index < size.
  const Candidate& At(size_t index);

 private:
  std::vector<Candidate>& candidates_;
  std::vector<Candidate>& spare_;
  size_t sorted_;
};

}  // namespace quire::runner::sampler
