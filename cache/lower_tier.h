// Somewhere cheaper that prefixes go to and come back from: a disk, another machine. The engine never waits
// for it: everything is begun, polled and canceled.
//
// One fetch and one store may be under way at once. No call blocks. What a tier answers is checked for its
// shape (promotion.h); that its bytes are those that were stored is the tier's to know.
// All calls on the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/segment.h"
#include "cache/types.h"

namespace quire::cache {

class LowerTier {
 public:
  virtual ~LowerTier() = default;

  // ---- fetching: StartFetch, kOffer, ContinueFetch (accepted), kBytes, ContinueFetch, ..., kEnd ----

  struct Fetched {
    enum class Kind : uint8_t {
      kPending,
      kOffer,  // the longest prefix that it has: [0, to), without what the store has; to == 0: none
      kBytes,  // the next ones, in the order of SegmentsOf(); valid until ContinueFetch()
      kEnd,    // all of them came, and are right
      kFailed,
    } kind = Kind::kPending;
    Position to = 0;
    size_t bytes_total = 0;  // of the offer
    Segment segment = {};
    size_t offset = 0;
    std::span<const std::byte> bytes = {};
  };
  // Looks for a prefix of `tokens` shorter than they are that can be restored beyond `restorable`, given the
  // first `matched` tokens' KV. False: it cannot begin now. After kOffer with to == 0, kEnd and kFailed
  // nothing is under way.
  virtual bool StartFetch(std::string_view isolation, std::span<const TokenId> tokens, Position matched,
                          Position restorable) = 0;
  virtual Fetched PollFetch() = 0;
  virtual void ContinueFetch() = 0;
  virtual void CancelFetch() = 0;

  // ---- storing: StartStore, kWanted, ContinueStore, ..., kEnd ----

  struct Wanted {
    enum class Kind : uint8_t { kPending, kWanted, kEnd } kind = Kind::kPending;
    Segment segment = {};
    size_t offset = 0;
    std::span<std::byte> out = {};  // to be filled before ContinueStore()
  };
  // Offers the prefix of all these tokens. The tier asks for what it lacks. False: it cannot begin now.
  virtual bool StartStore(std::string_view isolation, std::span<const TokenId> tokens) = 0;
  virtual Wanted PollStore() = 0;
  virtual void ContinueStore() = 0;
  virtual void CancelStore() = 0;  // the prefix is gone
};

}  // namespace quire::cache
