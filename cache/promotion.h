// What moves between a snapshot store and the tier below it, in small parts between the engine's steps.
//
// Promotion brings one prefix up. It is in the store when the last byte has come and the tier vouches for it,
// or not at all: a tier that answers late, wrong or never costs memory until it is canceled, and nothing
// else. Demotion copies prefixes down while the store still has them, so that an eviction costs no time; a
// prefix that is evicted before its turn is given up. Engine thread only. The store outlives both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/lower_tier.h"
#include "cache/segment.h"
#include "cache/snapshot_store.h"

namespace quire::cache {

class Promotion {
 public:
  Promotion(HybridCache& cache, SnapshotStore& store, LowerTier& tier)
      : cache_(cache), store_(store), tier_(tier) {}
  ~Promotion() { Cancel(); }
  Promotion(const Promotion&) = delete;
  Promotion& operator=(const Promotion&) = delete;

  enum class State : uint8_t {
    kIdle,
    kSearching,
    kOffered,  // waits for Accept() or Cancel()
    kFetching,
  };
  // False: something is under way, or the tier cannot begin.
  // `owner`: for whom the store keeps it.
  bool Begin(std::string_view isolation, std::span<const TokenId> tokens, std::string_view owner = {});
  // Goes on as far as possible without waiting, by at most `bytes_max` and one answer.
  State Poll(size_t bytes_max);
  State state() const { return state_; }
  // kOffered: tokens that would be restorable beyond those that are now, and bytes to fetch.
  Position offered_tokens() const { return offer_to_ - restorable_; }
  size_t offered_bytes() const { return offer_bytes_; }
  // Takes memory for the offer; kIdle when there is none.
  State Accept();
  void Cancel();

  struct Counters {
    uint64_t fetched = 0;  // prefixes
    uint64_t bytes = 0;
    uint64_t refused = 0;  // answers of a wrong shape
    uint64_t failed = 0;   // fetches that the tier ended, or for which there was no memory
  };
  const Counters& counters() const { return counters_; }

 private:
  void Receive(const LowerTier::Fetched& fetched);
  void Finish();
  void Refuse();

  HybridCache& cache_;
  SnapshotStore& store_;
  LowerTier& tier_;
  State state_ = State::kIdle;
  std::string isolation_;
  std::string owner_;
  std::vector<TokenId> tokens_;
  Position matched_ = 0;
  Position restorable_ = 0;
  Position offer_to_ = 0;
  size_t offer_bytes_ = 0;
  std::optional<SnapshotImport> import_;
  Counters counters_;
};

class Demotion {
 public:
  static constexpr size_t kQueueMax = 256;  // prefixes

  Demotion(const HybridCache& cache, const SnapshotStore& store, LowerTier& tier)
      : cache_(cache), store_(store), tier_(tier) {}
  ~Demotion();
  Demotion(const Demotion&) = delete;
  Demotion& operator=(const Demotion&) = delete;

  // The store has got a snapshot of all these tokens, for `owner`. A full queue gives one up, of the owner
  // that has most in it.
  void Add(std::string_view isolation, std::span<const TokenId> tokens, std::string_view owner = {});
  // Goes on without waiting, by one answer. False: nothing is left to do.
  bool Poll();

  struct Counters {
    uint64_t stored = 0;   // prefixes
    uint64_t bytes = 0;    // copied
    uint64_t dropped = 0;  // prefixes given up: evicted before their turn, too many, or no memory
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Prefix {
    std::string isolation;
    std::vector<TokenId> tokens;
    std::string owner;
  };
  bool Fill(const LowerTier::Wanted& wanted) const;
  void MakeRoom();
  void Drop();

  const HybridCache& cache_;
  const SnapshotStore& store_;
  LowerTier& tier_;
  std::deque<Prefix> queue_;
  bool storing_ = false;  // the first of the queue
  Counters counters_;
};

}  // namespace quire::cache
