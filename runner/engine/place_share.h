// Which running request gives up its place in the batch for one that waits. A pure function of state.
//
// Places belong to parties: a tenant, or, where nobody said who asks, one exchange with all its choices. A party that has
// no place gets one, and a client that does not read keeps none that others need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace quire::runner::engine {

// Of a running request.
struct Place {
  std::string_view party;
  uint64_t arrival = 0;
  bool stalled = false;  // its reader has taken nothing for kStalledAfter
  bool exact = true;     // computing it again is bit-identical
};

// First a stalled request, then, if `party` runs nothing, the youngest of the party with the most places, if that has more
// than one. Of these rather one that can be computed again than one that cannot. Index into `running`.
std::optional<size_t> PlaceToGive(std::span<const Place> running, std::string_view party);

}  // namespace quire::runner::engine
