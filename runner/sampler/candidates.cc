#include "runner/sampler/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace quire::runner::sampler {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::ptrdiff_t Offset(size_t index) { return static_cast<std::ptrdiff_t>(index); }

constexpr size_t kTogether = 64;

// Of kTogether logits. Lanes are summed up first, in the width of a logit.
bool AnyAbove(const float* logits, float floor) {
  std::array<int32_t, 4> above{};
  for (size_t i = 0; i < kTogether; i += above.size()) {
    for (size_t lane = 0; lane < above.size(); ++lane) above[lane] |= logits[i + lane] > floor ? 1 : 0;
  }
  return (above[0] | above[1] | above[2] | above[3]) != 0;
}

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
  std::array<int32_t, kLanes> not_below_infinity{};  // as wide as a logit, for vectors of both
  const auto take = [&](size_t lane, float logit) {
    not_below_infinity[lane] |= logit < kInfinity ? 0 : 1;  // 1 for NaN
    maxima[lane] = logit > maxima[lane] ? logit : maxima[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, logits[i + lane]);
  }
  for (; i < logits.size(); ++i) take(0, logits[i]);
  const float maximum = *std::max_element(maxima.begin(), maxima.end());
  const bool finite = std::ranges::none_of(not_below_infinity, [](int32_t bad) { return bad != 0; });
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
  const auto take = [&](size_t id) {
    if (!(logits[id] > floor)) return;
    out.push_back({.id = static_cast<TokenId>(id), .logit = logits[id]});
    if (out.size() < full) return;
    Prune(out, count);
    floor = out[count - 1].logit;
  };
  // Most logits of a large vocabulary are below: they are looked at as vectors.
  size_t id = 0;
  for (; id + kTogether <= logits.size(); id += kTogether) {
    if (!AnyAbove(logits.data() + id, floor)) continue;
    for (size_t i = 0; i < kTogether; ++i) take(id + i);
  }
  for (; id < logits.size(); ++id) take(id);
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
