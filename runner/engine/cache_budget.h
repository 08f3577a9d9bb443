// How much memory the caches of a runner may take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/layout.h"

namespace quire::runner::engine {

// Bytes this process may still take: the machine's available memory, or less where a cgroup above it says so.
size_t AvailableMemory();

// Bytes for pages, slots and snapshots together. `asked` > 0 holds as it is, but for the least that one short
// sequence takes. Otherwise a quarter of what is available, at most kCacheBytesMax; more, up to half of what
// is available, where one sequence of the whole context needs it. Memory is taken as it is used.
size_t CacheBudget(const cache::Layout& layout, int32_t context_length, int64_t asked, size_t available);

inline constexpr size_t kCacheBytesMax = size_t{4} << 30;

}  // namespace quire::runner::engine
