// Prefix reuse: where the engine meets the snapshot store.
//
// A request begins at the longest prefix that a snapshot, or a sequence that is running, can give it. On its
// way through the prompt it leaves snapshots where others are likely to return: where its prompt left what
// was known, at message boundaries, before the assistant's header, every SnapshotInterval() tokens, and at
// its end. They are in the store as soon as the step that reached them is committed. Where the caches can be
// cut at any token (full attention alone) only the end is kept, which serves every offset before it, and the
// restore points that the client marked, which stay when the tokens behind them are evicted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/snapshot_store.h"
#include "runner/engine/steps/active_request.h"
#include "runner/engine/steps/prefix_tier.h"

namespace quire::runner::engine {

// Tokens between two snapshots of a long prompt: enough that a snapshot's own state is no larger than the KV
// of the tokens between two.
int32_t SnapshotInterval(const cache::Layout& layout);

// Where to take snapshots in the prompt tokens (reused, size), ascending: `diverged` (0 = nowhere),
// boundaries, intervals, and before the last token where no boundary is near. Of crowded boundaries the
// first, the last ones and those apart by a quarter of an interval.
std::vector<int32_t> SnapshotOffsets(std::span<const int32_t> boundaries, int32_t reused, int32_t diverged,
                                     int32_t size, int32_t interval);

// Engine thread only; outlives no lease: requests must be ended or given up before.
class PrefixReuse {
 public:
  static constexpr size_t kShownTokens = 32;  // of a divergence, for views

  // The cache outlives it. Not enabled: every request starts cold and nothing is kept.
  PrefixReuse(cache::HybridCache& cache, size_t budget_bytes, bool enabled);

  struct Outcome {
    int32_t reused = 0;  // tokens; less than the request's, whose last one is always computed
    std::string miss;    // why not all: "cold", "diverged@12", ...; empty when all were
    const ActiveRequest* source = nullptr;  // whose sequence was forked; null: none
    // Where the prompt leaves what is known of its isolation key, and how that goes on (at most
    // kShownTokens); 0: it does not, or nothing is known.
    int32_t diverged = 0;
    std::vector<api::TokenId> known = {};
  };
  // Gives the request, which runs, a sequence with the longest reusable prefix of its tokens and schedules
  // snapshots on the rest of its prompt. `running`: whose sequences may be forked.
  Outcome AttachPrefix(ActiveRequest& request, const ActiveRequests& running);
  // A lower bound of what AttachPrefix() would reuse now.
  int32_t Reusable(const ActiveRequest& request, const ActiveRequests& running);
  // Has a running request leave a snapshot at `offset` for a follower. Nothing to do where any token serves.
  void ScheduleSnapshotAt(ActiveRequest& request, int32_t offset);
  // After a committed step: its captures go to the store.
  void Collect(ActiveRequest& request);
  // The request releases what the caches have of it: ended, canceled or preempted. The computed prefix stays
  // in the store.
  void StorePrefix(ActiveRequest& request);

  // Prefixes also go to `link`, and come back from there. At most once.
  void AddTier(std::unique_ptr<TierLink> link);
  // Whether a request that would be admitted now stands aside for what lies below (prefix_tier.h).
  bool StandsAside(ActiveRequest& request, const ActiveRequests& running);
  bool PollTier(const ActiveRequests& waiting, double token_seconds) {
    return tier_ && tier_->Poll(waiting, token_seconds);
  }
  bool ReleaseTierMemory() { return tier_ && tier_->ReleaseMemory(); }
  void FlushTier(std::chrono::nanoseconds time) {
    if (tier_) tier_->Flush(time);
  }

  void AdvanceClock() { store_.AdvanceClock(); }
  const cache::SnapshotStore& store() const { return store_; }  // for views
  cache::StoreStats stats() const { return store_.stats(); }
  std::expected<void, std::string> CheckInvariants() const { return store_.CheckInvariants(); }

 private:
  struct Source {
    ActiveRequest* request = nullptr;
    int32_t tokens = 0;
  };
  Source LongestRunning(const ActiveRequest& request, const ActiveRequests& running) const;
  void Schedule(ActiveRequest& request, int32_t offset);
  void RecordDivergence(const ActiveRequest& request, int32_t at, Outcome& outcome);
  void Insert(ActiveRequest& request, cache::Snapshot snapshot);
  void UpdateClaim(CacheState& cached) const;

  cache::HybridCache& cache_;
  cache::SnapshotStore store_;
  std::unique_ptr<PrefixTier> tier_;  // null: none
  const bool enabled_;
  const bool sliceable_;  // every layer can be restored at any token
  const int32_t interval_;
};

}  // namespace quire::runner::engine
