#include "runner/sampler/mirostat.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace quire::runner::sampler {
namespace {

constexpr size_t kFitted = 100;  // most likely tokens whose probabilities give the exponent

// Version 1: how many of the best keep the expected surprise at `limit` bits, from a Zipf distribution fitted
// to `weights`, which descend.
size_t CountWithin(const std::vector<double>& weights, double limit) {
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i + 1 < std::min(weights.size(), kFitted) && weights[i + 1] > 0; ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * std::log(weights[i] / weights[i + 1]);
    squares += t * t;
  }
  const double exponent = squares > 0 ? products / squares : 0;
  const double epsilon = exponent - 1;
  const double size = static_cast<double>(weights.size());
  const double count = std::pow(epsilon * std::exp2(limit) / (1 - std::pow(size, -epsilon)), 1 / exponent);
  if (!(count < size)) return weights.size();
  return std::max<size_t>(static_cast<size_t>(count), 1);
}

}  // namespace

TokenId Mirostat::Draw(std::span<const Candidate> candidates, std::vector<double>& weights, float temperature,
                       double uniform) {
  weights.clear();
  double total = 0;
  for (const Candidate& candidate : candidates) {
    const double below = double{candidate.logit} - double{candidates.front().logit};
    total += weights.emplace_back(std::exp(below / double{temperature}));
  }
  size_t kept = 1;
  if (version_ == 1) {
    kept = CountWithin(weights, double{limit_});
  } else {
    const double least = total * std::exp2(-double{limit_});
    while (kept < weights.size() && weights[kept] >= least) ++kept;
  }
  double within = 0;
  for (size_t i = 0; i < kept; ++i) within += weights[i];
  double left = uniform * within;
  size_t chosen = 0;
  while (chosen + 1 < kept && (left -= weights[chosen]) >= 0 && weights[chosen + 1] > 0) ++chosen;
  if (candidates.size() > 1) {
    const double surprise = -std::log2(weights[chosen] / within);
    const double limit = double{limit_} - double{eta_} * (surprise - double{tau_});
    limit_ = static_cast<float>(std::clamp(limit, -double{kLimitMax}, double{kLimitMax}));
  }
  return candidates[chosen].id;
}

}  // namespace quire::runner::sampler
