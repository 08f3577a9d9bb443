// Which running requests give up their places in the batch for one that waits, and whose turn a place is.
//
// Places belong to parties: a key, or an address where no key was checked. Behind an address may be several
// people, so that its places belong to its members: its exchanges, each with all its choices. A party that
// has no place gets one of another party's, a member that has none gets one of another member's, and a client
// that does not read keeps none that others need. Where nobody has two, they take turns (PlaceRotation).
//
// The governor (api/base/fair) says how many places are whose, but not which one is taken back: that costs
// computing again, and other bits where there is no memory for a snapshot.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
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
  uint64_t party = 0;  // the number of its fair::PartyId
  uint64_t arrival = 0;
  bool stalled = false;  // its reader has taken nothing for kStalledAfter
  bool exact = true;     // computing it again is bit-identical
  size_t bytes = 0;      // of the caches that are counted for it
  uint64_t member = 0;   // of the party (api::Client)
  uint64_t given = 0;    // order in which the running requests got their places
  bool produced = true;  // it has computed a token of its answer since then
  Leaving leaving = Leaving::kSnapshot;
  int64_t work = 0;  // tokens that it may still take, prompt and answer
};

// Requests of a class have about the same work left; larger: more of it.
uint64_t WorkClass(int64_t work);

// Who asks for a place, or has one.
struct PartyMember {
  uint64_t party = 0;
  uint64_t member = 0;
  auto operator<=>(const PartyMember&) const = default;
};

// Counts of places.
class PlaceCounts {
 public:
  explicit PlaceCounts(std::span<const Place> running);
  size_t OfParty(uint64_t party) const;
  size_t Of(const PartyMember& owner) const;
  size_t LargestParty() const;
  size_t LargestMemberOf(uint64_t party) const;

 private:
  std::map<uint64_t, size_t> parties_;
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

// A request whose member has no place.
struct RotationCandidate {
  PartyMember owner;
  uint64_t arrival = 0;
  uint64_t waits_since = 0;  // order in which requests began to wait (again)
  bool has_run = false;
  int64_t work = 0;  // tokens that it may still take, prompt and answer
  size_t bytes = 0;
};

// Time slices of places in the batch, where more members want one than there are places and each has at most
// one.
//
// A member of a party that has no place gets the one of its party that was given longest ago. Handovers of a
// party are one interval apart: a time slice divided by its places. Each place so lasts about a time slice
// while members wait, and a member that comes waits for at most one interval. First comes the least work that
// is left, so that a short request does not wait for all long ones that came before it, nor for its last
// tokens. Of about equal work, members come first that have had no place yet, the newest of them first. One
// handover of four goes to the member that waits longest: each has a place again after at most four handovers
// for every member that waits longer.
//
// The same holds between parties where each has at most one place: one that has none gets one of all.
//
// Engine thread only.
class PlaceRotation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::nanoseconds kTimeSlice = std::chrono::seconds(1);
  static constexpr int64_t kPlacesMin =
      4;  // fewer places are counted as these: a member waits for a quarter of a slice at most
  static constexpr uint64_t kOldestEvery = 4;

  // Among whom places change hands: the members of a party, or all parties.
  struct Scope {
    bool all = false;
    uint64_t party = 0;
    auto operator<=>(const Scope&) const = default;
  };
  struct Handover {
    size_t next = 0;              // index into `waiting`
    std::vector<size_t> leaving;  // indexes into `running`
    Scope scope;
  };

  explicit PlaceRotation(std::chrono::nanoseconds time_slice = kTimeSlice) : time_slice_(time_slice) {}

  // Nothing while no handover is due, or where nobody gives a place whose memory, with `bytes_left`, is
  // enough. One that has run takes no place of a request that has computed no token of its answer since it
  // has that place: prompts that are longer than a slice would else not get on. One that would come back with
  // other bits leaves only for one that has not run, and only if the others do not suffice: a stream whose
  // context was shifted may hold all memory forever. Of a member that waits with a request that has run, that
  // one is first.
  std::optional<Handover> Choose(std::span<const Place> running, std::span<const RotationCandidate> waiting,
                                 size_t bytes_left, Time now) const;
  // It was carried out.
  void Record(const Scope& scope, std::span<const Place> running, Time now);

 private:
  struct State {
    Time next{};  // no handover before
    uint64_t handovers = 0;
  };
  State StateOf(const Scope& scope) const;

  std::chrono::nanoseconds time_slice_;
  std::map<Scope, State> scopes_;
};

}  // namespace quire::runner::engine
