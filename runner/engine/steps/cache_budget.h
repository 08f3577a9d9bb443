// Cache sizing: how much memory the caches of a runner request.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/layout.h"

namespace quire::runner::engine {

struct CacheSizing {
  size_t bytes = 0;
  size_t min_bytes = 0;  // enough for one short sequence
};

// For pages, slots and snapshots together. `asked` > 0 sets both fields, but not below what one short
// sequence needs. Otherwise a quarter of what is available, at most kCacheBytesMax; more, up to half of what
// is available, where one sequence of the whole context needs it. Memory is taken as it is used.
CacheSizing ChooseCacheSize(const cache::Layout& layout, int32_t context_length, int64_t asked,
                            size_t available);

// The budget's parts. A draft model's caches (`draft`, unless null) get as much as its tokens weigh beside
// the model's, compiled constraints a small share.
struct CacheShares {
  size_t model = 0;
  size_t draft = 0;
  size_t constraints = 0;
};
CacheShares ShareCache(const cache::Layout& target, const cache::Layout* draft, size_t budget);

// The smallest budget of which the model's share holds one sequence of `tokens` tokens
// (HybridCache::LargestSequence). 0 for no tokens.
size_t BudgetForContext(const cache::Layout& target, const cache::Layout* draft, int32_t tokens);

// Tokens of the longest sequence, at most `context_length`, that `bytes` hold.
int32_t ContextThatFits(const cache::Layout& layout, int32_t context_length, size_t bytes);

inline constexpr size_t kCacheBytesMax = size_t{4} << 30;

// Compiled constraints may have this much beside very small caches.
inline constexpr size_t kConstraintBytesMin = size_t{64} << 20;

}  // namespace quire::runner::engine
