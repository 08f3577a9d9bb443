#include "runner/sampler/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "runner/sampler/sort_by_key.h"

namespace quire::runner::sampler {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::ptrdiff_t Offset(size_t index) { return static_cast<std::ptrdiff_t>(index); }

constexpr size_t kBlock = 64;  // logits whose maximum is kept
constexpr size_t kGroupsMin = 64;
constexpr size_t kFirstSorted = 128;  // candidates that are sorted before all are

// The widest vectors of the machine; a sanitizer's run-time library is not there yet when the choice is made.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define QUIRE_WIDEST_VECTORS [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define QUIRE_WIDEST_VECTORS
#endif

// Fills the maxima of whole blocks; false when a logit is NaN or +inf.
QUIRE_WIDEST_VECTORS bool BlockMaxima(const float* logits, size_t blocks, float* to) {
  // Lanes that do not wait for each other: one running maximum would cost the latency of a comparison per
  // logit.
  constexpr size_t kLanes = 16;
  int32_t not_below_infinity[kLanes] = {};  // as wide as a logit, for vectors of both; 1 for NaN
  for (size_t block = 0; block < blocks; ++block, logits += kBlock) {
    float maxima[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) maxima[lane] = -kInfinity;
    for (size_t i = 0; i < kBlock; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float logit = logits[i + lane];
        not_below_infinity[lane] |= logit < kInfinity ? 0 : 1;
        maxima[lane] = logit > maxima[lane] ? logit : maxima[lane];
      }
    }
    for (size_t width = kLanes / 2; width > 0; width /= 2) {
      for (size_t lane = 0; lane < width; ++lane) {
        const float other = maxima[lane + width];
        maxima[lane] = other > maxima[lane] ? other : maxima[lane];
      }
    }
    to[block] = maxima[0];
  }
  int32_t bad = 0;
  for (const int32_t lane : not_below_infinity) bad |= lane;
  return bad == 0;
}

// Lower for a higher logit, the same for both zeros.
uint32_t DescendingKey(const Candidate& candidate) {
  const auto bits = std::bit_cast<uint32_t>(candidate.logit + 0.0F);
  constexpr uint32_t kSign = uint32_t{1} << 31U;
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}

// Keeps the `count` best, unordered.
void Prune(std::vector<Candidate>& candidates, size_t count) {
  if (candidates.size() <= count) return;
  std::nth_element(candidates.begin(), candidates.begin() + Offset(count - 1), candidates.end(), Better);
  candidates.resize(count);
}

// Below `count` logits at least, and near to the count-th: the blocks form more than `count` groups, and the
// bound is the count-th highest of the groups' maxima.
float FloorOf(Maxima& maxima, size_t count) {
  const size_t groups = std::min(std::max(2 * count, kGroupsMin), maxima.blocks.size());
  if (groups < count) return -kInfinity;
  maxima.groups.assign(groups, -kInfinity);
  for (size_t block = 0, group = 0; block < maxima.blocks.size(); ++block) {
    maxima.groups[group] = std::max(maxima.groups[group], maxima.blocks[block]);
    if (++group == groups) group = 0;
  }
  const auto at = maxima.groups.begin() + Offset(count - 1);
  std::nth_element(maxima.groups.begin(), at, maxima.groups.end(), std::greater<>());
  return std::nextafter(*at, -kInfinity);
}

}  // namespace

api::Result<float> CheckedMaximum(std::span<const float> logits, Maxima& maxima) {
  const size_t whole = logits.size() / kBlock;
  maxima.blocks.resize((logits.size() + kBlock - 1) / kBlock);
  bool finite = BlockMaxima(logits.data(), whole, maxima.blocks.data());
  if (maxima.blocks.size() > whole) {
    float& last = maxima.blocks.back() = -kInfinity;
    for (const float logit : logits.subspan(whole * kBlock)) {
      finite = finite && logit < kInfinity;
      last = logit > last ? logit : last;
    }
  }
  if (!finite) {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("the logit of token {} is {}", bad - logits.begin(), *bad));
  }
  const auto highest = std::ranges::max_element(maxima.blocks);
  if (highest == maxima.blocks.end() || *highest == -kInfinity) {
    return api::Fail(api::ErrorCode::kInternal, "no token has a logit above -inf");
  }
  return *highest;
}

TokenId FirstOf(std::span<const float> logits, float logit) {
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), logit) - logits.begin());
}

void SelectBest(std::span<const float> logits, size_t count, Maxima& maxima, std::vector<Candidate>& out,
                std::vector<Candidate>& spare) {
  out.clear();
  count = std::min(count, logits.size());
  // Nothing at or below it can be among the best any more.
  float floor = FloorOf(maxima, count);
  const size_t full = 2 * count + 256;
  out.reserve(std::min(full, logits.size()));
  for (size_t block = 0; block < maxima.blocks.size(); ++block) {
    if (!(maxima.blocks[block] > floor)) continue;
    const size_t end = std::min((block + 1) * kBlock, logits.size());
    for (size_t id = block * kBlock; id < end; ++id) {
      if (!(logits[id] > floor)) continue;
      out.push_back({.id = static_cast<TokenId>(id), .logit = logits[id]});
      if (out.size() < full) continue;
      Prune(out, count);
      floor = out[count - 1].logit;
    }
  }
  if (count < kSortByKeyMin) Prune(out, count);
  SortBest(out, spare);
  if (out.size() > count) out.resize(count);
}

void SortBest(std::vector<Candidate>& candidates, std::vector<Candidate>& spare) {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (candidates.size() >= kSortByKeyMin && !std::ranges::is_sorted(candidates, by_id)) {
    // Then equal logits are in order, too.
    SortByKey(
        candidates, spare, [](const Candidate& c) { return static_cast<uint32_t>(c.id); }, by_id);
  }
  SortByKey(candidates, spare, DescendingKey, Better);
}

const Candidate& PartlySorted::At(size_t index) {
  if (index < sorted_) return candidates_[index];
  if (sorted_ > 0 || index >= kFirstSorted) {
    SortBest(candidates_, spare_);
    sorted_ = candidates_.size();
  } else {
    sorted_ = std::min(candidates_.size(), kFirstSorted);
    const auto end = candidates_.begin() + Offset(sorted_);
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), Better);
    std::sort(candidates_.begin(), end, Better);
  }
  return candidates_[index];
}

}  // namespace quire::runner::sampler
