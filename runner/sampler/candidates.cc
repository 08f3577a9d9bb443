#include "runner/sampler/candidates.h"

#include <fmt/format.h>

#include <algorithm>
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
  float maximum = -kInfinity;
  bool finite = true;
  for (const float logit : logits) {
    finite &= logit < kInfinity;  // false for NaN
    maximum = std::max(maximum, logit);
  }
  if (!finite) {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("the logit of token {} is {}", bad - logits.begin(), *bad));
  }
  if (maximum == -kInfinity) return api::Fail(api::ErrorCode::kInternal, "no token has a logit above -inf");
  return maximum;
}

TokenId Best(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
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
