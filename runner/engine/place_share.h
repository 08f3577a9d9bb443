// Which running requests give up their places in the batch for one that waits. Pure functions of state.
//
// Places belong to parties: a tenant, or, where nobody said who asks, one exchange with all its choices. A party that has
// no place gets one, and a client that does not read keeps none that others need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace quire::runner::engine {

// Free places that one party may take of `running_max` in all: a few stay free, so that the first requests of others need
// not preempt one.
constexpr int32_t PlacesOfOneParty(int32_t running_max) { return running_max - running_max / 16; }

// Of a running request.
struct Place {
  std::string_view party;
  uint64_t arrival = 0;
  bool stalled = false;  // its reader has taken nothing for kStalledAfter
  bool exact = true;     // computing it again is bit-identical
  size_t bytes = 0;      // of the caches that are counted for it
};

// First a stalled request, then, if `party` runs nothing, the youngest of the party with the most places, if that has more
// than one. Of these rather one that can be computed again than one that cannot. Index into `running`.
std::optional<size_t> PlaceToGive(std::span<const Place> running, std::string_view party);

// One or more of them, by the same rule, that have `bytes` together: as few as that takes. Empty: the rule finds none, or
// all that it finds have too little.
std::vector<size_t> PlacesToGive(std::span<const Place> running, std::string_view party, size_t bytes);

// Who is preempted when memory runs out: a stalled request, else the youngest of the party with the most places; of these
// too rather one that can be computed again. The oldest request of all is preempted last. REQUIRES: there is one.
size_t PlaceToPreempt(std::span<const Place> running);

}  // namespace quire::runner::engine
