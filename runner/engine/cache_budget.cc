#include "runner/engine/cache_budget.h"

#include <algorithm>

#include "runner/engine/admission.h"
#include "runner/engine/prefill_budget.h"

namespace quire::runner::engine {
namespace {

constexpr int64_t kShortSequence = 512;  // tokens
// What compiled answer formats may take beside the caches.
constexpr size_t kConstraintShare = 16;
constexpr size_t kConstraintBytesMax = size_t{64} << 20;

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
