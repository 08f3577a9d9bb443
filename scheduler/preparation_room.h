// Which large requests may go to a runner: it holds a bounded part of those that it has not prepared yet.
//
// A runner that had all of them at once would hold as much as the daemon does, for the time that their
// preparations take. Small requests pass. A party with nothing large in the runner may send one, however much
// others have there. A quota would refuse it: what a plan has admitted does not fail for room.
#pragma once

#include <cstddef>
#include <map>

#include "api/base/fair/party.h"
#include "api/base/request_memory.h"

namespace quire::scheduler {

// Bytes are api::MemoryBytes().
struct PreparationLimits {
  size_t small = api::kSmallRequestBytes;  // a request that takes no more is not counted
  size_t all = size_t{64} << 20;           // of requests that the runner prepares
  size_t party = size_t{32} << 20;         // of one party (api::Client)
};

// Belongs to one runner. I/O thread only.
class PreparationRoom {
 public:
  explicit PreparationRoom(const PreparationLimits& limits) : limits_(limits) {}

  bool HasRoomFor(size_t bytes, const fair::PartyId& party) const {
    if (bytes <= limits_.small) return true;
    const auto found = parties_.find(party);
    if (found == parties_.end()) return true;
    return Fits(found->second, bytes, limits_.party) && Fits(bytes_, bytes, limits_.all);
  }
  // What Remove() has to give back; 0: it is not counted.
  size_t Add(size_t bytes, const fair::PartyId& party) {
    if (bytes <= limits_.small) return 0;
    parties_[party] += bytes;  // may throw
    bytes_ += bytes;
    return bytes;
  }
  // REQUIRES: Add() of the same.
  void Remove(size_t bytes, const fair::PartyId& party) {
    if (bytes == 0) return;
    bytes_ -= bytes;
    const auto found = parties_.find(party);
    found->second -= bytes;
    if (found->second == 0) parties_.erase(found);
  }
  size_t bytes() const { return bytes_; }

 private:
  static bool Fits(size_t held, size_t bytes, size_t limit) { return held <= limit && bytes <= limit - held; }

  const PreparationLimits limits_;
  size_t bytes_ = 0;
  std::map<fair::PartyId, size_t> parties_;  // no zeros
};

}  // namespace quire::scheduler
