#include "runner/sampler/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace quire::runner::sampler {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::ptrdiff_t Offset(size_t index) { return static_cast<std::ptrdiff_t>(index); }

// Keeps the `count` best, unordered.
void Prune(std::vector<Candidate>& candidates, size_t count) {
  if (candidates.size() <= count) return;
  std::nth_element(candidates.begin(), candidates.begin() + Offset(count - 1), candidates.end(), Better);
  candidates.resize(count);
}

}  // namespace

api::Result<float> CheckedMaximum(std::span<const float> logits) {
  // Lanes that do not wait for each other: one running maximum would cost the latency of a comparison per
  // logit.
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> maxima;
  maxima.fill(-kInfinity);
  std::array<bool, kLanes> below_infinity;
  below_infinity.fill(true);
  const auto take = [&](size_t lane, float logit) {
    below_infinity[lane] &= logit < kInfinity;  // false for NaN
    maxima[lane] = logit > maxima[lane] ? logit : maxima[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, logits[i + lane]);
  }
  for (; i < logits.size(); ++i) take(0, logits[i]);
  const float maximum = *std::max_element(maxima.begin(), maxima.end());
  const bool finite = std::all_of(below_infinity.begin(), below_infinity.end(), [](bool b) { return b; });
  if (!finite) {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("the logit of token {} is {}", bad - logits.begin(), *bad));
  }
  if (maximum == -kInfinity) return api::Fail(api::ErrorCode::kInternal, "no token has a logit above -inf");
  return maximum;
}

TokenId FirstOf(std::span<const float> logits, float logit) {
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), logit) - logits.begin());
}

void SelectBest(std::span<const float> logits, size_t count, std::vector<Candidate>& out) {
  out.clear();
  count = std::min(count, logits.size());
  const size_t full = 2 * count + 256;
  float floor = -kInfinity;  // nothing at or below it can be among the best any more
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] > floor)) continue;
    out.push_back({.id = static_cast<TokenId>(id), .logit = logits[id]});
    if (out.size() < full) continue;
    Prune(out, count);
    floor = out[count - 1].logit;
  }
  Prune(out, count);
  std::sort(out.begin(), out.end(), Better);
}

const Candidate& PartlySorted::At(size_t index) {
  while (index >= sorted_) {
    const size_t end = std::min(candidates_.size(), std::max<size_t>(4 * sorted_, 128));
    const auto from = candidates_.begin() + Offset(sorted_);
    std::nth_element(from, candidates_.begin() + Offset(end - 1), candidates_.end(), Better);
    std::sort(from, candidates_.begin() + Offset(end), Better);
    sorted_ = end;
  }
  return candidates_[index];
}

}  // namespace quire::runner::sampler
