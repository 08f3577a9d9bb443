#include "runner/engine/steps/cache_budget.h"

#include <algorithm>
#include <cstdint>

#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/steps/admission.h"

namespace quire::runner::engine {
namespace {

constexpr int64_t kShortSequence = 512;  // tokens
// What compiled answer formats may take beside the caches.
constexpr size_t kConstraintShare = 16;
constexpr size_t kConstraintBytesMax = size_t{256} << 20;

}  // namespace

CacheSizing ChooseCacheSize(const cache::Layout& layout, int32_t context_length, int64_t asked,
                            size_t available) {
  const int64_t batch = StepTarget().tokens_max;
  const size_t min_bytes = SequenceBytes(layout, kShortSequence, batch);
  if (asked > 0) {
    const size_t bytes = std::max(static_cast<size_t>(asked), min_bytes);
    return {bytes, bytes};
  }
  const size_t whole = SequenceBytes(layout, context_length, batch);
  const size_t usual = std::min(available / 4, kCacheBytesMax);
  return {std::max({min_bytes, usual, std::min(whole, available / 2)}), min_bytes};
}

namespace {

size_t DraftShare(const cache::Layout& target, const cache::Layout& draft, size_t budget) {
  constexpr int64_t kSequence = 4096;  // tokens
  const auto own = static_cast<double>(SequenceBytes(draft, kSequence, 0));
  const auto other = static_cast<double>(SequenceBytes(target, kSequence, 0));
  return static_cast<size_t>(static_cast<double>(budget) * own / (own + other));
}

}  // namespace

CacheShares ShareCache(const cache::Layout& target, const cache::Layout* draft, size_t budget) {
  CacheShares shares;
  if (draft != nullptr) shares.draft = DraftShare(target, *draft, budget);
  shares.constraints = std::min((budget - shares.draft) / kConstraintShare, kConstraintBytesMax);
  shares.model = budget - shares.draft - shares.constraints;
  return shares;
}

namespace {

// What HybridCache::LargestSequence counts for a sequence of this length.
size_t BytesOfLargest(const cache::Layout& layout, int64_t tokens, int64_t batch) {
  const auto pages_of = [&](int64_t count) { return (count + layout.page_tokens - 1) / layout.page_tokens; };
  size_t bytes = layout.recurrent.empty() ? 0 : cache::SlotBytes(layout);
  for (size_t group = 0; group < layout.groups.size(); ++group) {
    const int64_t window = layout.groups[group].window;
    const int64_t widest = window > 0 ? pages_of(window - 1 + batch) + 1 : INT64_MAX;
    bytes += static_cast<size_t>(std::min(pages_of(tokens), widest)) * cache::PageBytes(layout, group);
  }
  return bytes;
}

}  // namespace

size_t BudgetForContext(const cache::Layout& target, const cache::Layout* draft, int32_t tokens) {
  if (tokens <= 0) return 0;
  const size_t needed = BytesOfLargest(target, tokens, StepTarget().tokens_max);
  const auto holds = [&](size_t budget) { return ShareCache(target, draft, budget).model >= needed; };
  size_t enough = std::max<size_t>(needed, 1);
  while (!holds(enough)) enough *= 2;
  size_t too_small = 0;
  while (enough - too_small > 1) {
    const size_t middle = too_small + (enough - too_small) / 2;
    (holds(middle) ? enough : too_small) = middle;
  }
  return enough;
}

int32_t ContextThatFits(const cache::Layout& layout, int32_t context_length, size_t bytes) {
  const auto fits = [&](int32_t tokens) {
    return SequenceBytes(layout, tokens, StepTarget().tokens_max) <= bytes;
  };
  int32_t low = 0, high = context_length;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace quire::runner::engine
