// Which running requests give up their places in the batch for one that waits. Pure functions of state.
//
// Places belong to parties: a key, or an address where no key was checked. Behind an address may be several
// people, so that its places belong to its members: its exchanges, each with all its choices. A party that
// has no place gets one of another party's, a member that has none gets one of another member's, and a client
// that does not read keeps none that others need. Where nobody has two, they take turns (place_rotation.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace quire::runner::engine {

// Free places that one key, or one member of an address, may take of `running_max` in all: a few stay free,
// so that the first requests of others need not preempt one. An address may take all: a machine for one
// person serves as many requests at once as it has places, and the first request from elsewhere preempts one.
constexpr int32_t PlacesOfOne(int32_t running_max) { return running_max - running_max / 16; }

// How a running request can leave.
enum class Leaving : uint8_t {
  kSnapshot,  // what it computed becomes a snapshot; its memory is free, and it comes back bit-identical
  kPaused,    // it keeps its sequence, and so its memory and its bits
  kInexact,   // there is no memory for that: its memory is free, and it comes back with other bits
};

// A running request.
struct Place {
  std::string_view party;
  uint64_t arrival = 0;
  bool stalled = false;          // its reader has taken nothing for kStalledAfter
  bool exact = true;             // computing it again is bit-identical
  size_t bytes = 0;              // of the caches that are counted for it
  std::string_view member = {};  // of the party (api::Client)
  uint64_t given = 0;            // order in which the running requests got their places
  bool produced = true;          // it has computed a token of its answer since then
  Leaving leaving = Leaving::kSnapshot;
  int64_t work = 0;  // tokens that it may still take, prompt and answer
};

// Requests of a class have about the same work left; larger: more of it.
uint64_t WorkClass(int64_t work);

// Who asks for a place, or has one.
struct PartyMember {
  std::string_view party;
  std::string_view member = {};
  auto operator<=>(const PartyMember&) const = default;
};

// Counts of places.
class PlaceCounts {
 public:
  explicit PlaceCounts(std::span<const Place> running);
  size_t OfParty(std::string_view party) const;
  size_t Of(const PartyMember& owner) const;
  size_t LargestParty() const;
  size_t LargestMemberOf(std::string_view party) const;

 private:
  std::map<std::string_view, size_t> parties_;
  std::map<PartyMember, size_t> members_;
};

// First a stalled request, then, if the owner's party runs nothing, one of the party with the most places, if
// that has more than one, and if only its member runs nothing, one of its party, if a member of that has more
// than one. Of these the youngest of the member with the most, rather one that can be computed again than one
// that cannot. Index into `running`.
std::optional<size_t> PlaceToGive(std::span<const Place> running, const PartyMember& owner);

// One or more of them, by the same rule, that have `bytes` together: as few as that takes. Empty: the rule
// finds none, or all that it finds have too little.
std::vector<size_t> PlacesToGive(std::span<const Place> running, const PartyMember& owner, size_t bytes);

// Who is preempted when memory runs out: a stalled request, else the youngest of the party with the most
// places, there of the member with the most, and of those with the most work left: a short one would wait for
// the end of a long one. Rather one that can be computed again. REQUIRES: there is one.
size_t PlaceToPreempt(std::span<const Place> running);

}  // namespace quire::runner::engine
