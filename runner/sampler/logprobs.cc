#include "runner/sampler/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/sampler/candidates.h"

namespace quire::runner::sampler {

api::Result<Logprobs> ComputeLogprobs(std::span<const float> logits, api::TokenId chosen, int32_t top_count) {
  if (chosen < 0 || static_cast<size_t>(chosen) >= logits.size()) {
    return api::Fail(api::ErrorCode::kInternal, fmt::format("token {} is outside the vocabulary", chosen));
  }
  Maxima maxima;
  const auto maximum = CheckedMaximum(logits, maxima);
  if (!maximum) return std::unexpected(maximum.error());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{*maximum});
  const double log_sum = double{*maximum} + std::log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - log_sum); };

  Logprobs result;
  const auto at = static_cast<size_t>(chosen);
  result.chosen = {.id = chosen, .logprob = logprob(logits[at])};
  const auto better = std::ranges::count_if(logits, [of = logits[at]](float logit) { return logit > of; });
  result.rank = static_cast<int32_t>(better + std::ranges::count(logits.first(at), logits[at])) + 1;
  if (top_count <= 0) return result;
  std::vector<Candidate> best;
  std::vector<Candidate> spare;
  SelectBest(logits, static_cast<size_t>(top_count), maxima, best, spare);
  for (const Candidate& candidate : best) {
    result.top.push_back({.id = candidate.id, .logprob = logprob(candidate.logit)});
  }
  return result;
}

}  // namespace quire::runner::sampler
