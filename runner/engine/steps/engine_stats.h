// Engine statistics, readable from other threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire::runner::engine {

// Written by the engine thread, read by any. Each value is consistent by itself; together they are not an
// atomic snapshot.
struct EngineStats {
  std::atomic<uint64_t> progress = 0;  // loops of the engine and parallel loops inside its steps
  std::atomic<uint64_t> steps = 0;
  std::atomic<int32_t> running = 0;
  std::atomic<int32_t> waiting = 0;
  std::atomic<int64_t> cache_bytes_used = 0;
  std::atomic<int64_t> cache_bytes_resident = 0;  // those in use, and those freed but not given back
  std::atomic<int64_t> prefix_snapshots = 0;
  std::atomic<int64_t> prefix_bytes = 0;
  std::atomic<uint64_t> prefix_evictions = 0;
  std::atomic<uint64_t> prefix_changes = 0;  // version of the stored prefixes, see CacheInspected
};

}  // namespace quire::runner::engine
