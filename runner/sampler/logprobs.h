// Log-probabilities as clients see them: from the model's own distribution, before penalties, filters and
// temperature.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"

namespace quire::runner::sampler {

struct Logprob {
  api::TokenId id = 0;
  float logprob = 0;  // natural log
};

struct Logprobs {
  Logprob chosen;
  std::vector<Logprob> top;  // best first, the lower id first among equals
  int32_t rank = 1;          // of `chosen` in that order, from 1
};

// Computed in float64. kInternal when a logit is NaN or +inf, all are -inf, or `chosen` is outside the
// vocabulary. `top_count` beyond the vocabulary gives the whole vocabulary.
api::Result<Logprobs> ComputeLogprobs(std::span<const float> logits, api::TokenId chosen, int32_t top_count);

}  // namespace quire::runner::sampler
