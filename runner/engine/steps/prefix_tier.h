// Prefixes that lie below the snapshot store: which waiting request stands aside for one, and how long.
//
// A request whose prompt may have a longer prefix below than above asks once, when it would be admitted. It
// stands aside until the prefix is in the store, or until computing it would have taken as long; others run
// meanwhile (fetch_timing.h). A tier that is silent, or busy with another's prefix, keeps no request longer
// either. Engine thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "api/base/ids.h"
#include "cache/promotion.h"
#include "runner/engine/steps/active_request.h"
#include "runner/engine/steps/fetch_timing.h"
#include "runner/engine/steps/tier_link.h"

namespace quire::runner::engine {

class PrefixTier {
 public:
  // The cache and the store outlive it.
  PrefixTier(cache::HybridCache& cache, cache::SnapshotStore& store, std::unique_ptr<TierLink> link);

  // Whether the request, which would be admitted now with `reusable` tokens, stands aside.
  bool StandsAside(ActiveRequest& request, int32_t reusable);
  // The store took a snapshot of these tokens, for `owner`.
  void Stored(std::string_view isolation, std::span<const cache::TokenId> tokens, std::string_view owner) {
    if (link_->alive()) demotion_.Add(isolation, tokens, owner);
  }
  // Between two steps: goes on without waiting. `token_seconds`: of computing a prompt token; 0 = not
  // measured. True: something is under way.
  bool Poll(const ActiveRequests& waiting, double token_seconds);
  // Gives up memory that a fetch holds; whether there was one.
  bool ReleaseMemory();
  // Stores what is not stored yet, for at most this long, and as long as the tier answers.
  void Flush(std::chrono::nanoseconds time);

 private:
  ActiveRequest* Find(const ActiveRequests& waiting, api::RequestId id) const;
  void EndWaits(const ActiveRequests& waiting) const;
  void Start(const ActiveRequests& waiting);
  void Finish(ActiveRequest* request);

  std::unique_ptr<TierLink> link_;
  cache::Promotion promotion_;
  cache::Demotion demotion_;
  std::optional<api::RequestId> fetching_;  // whose prefix it is
  Clock::time_point began_{};
  uint64_t bytes_before_ = 0;
  FetchTiming timing_;
};

}  // namespace quire::runner::engine
