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
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/engine/shares/place_share.h"

namespace quire::runner::engine {

// A request whose member has no place.
struct RotationCandidate {
  PartyMember owner;
  uint64_t arrival = 0;
  uint64_t waits_since = 0;  // order in which requests began to wait (again)
  bool has_run = false;
  int64_t work = 0;  // tokens that it may still take, prompt and answer
  size_t bytes = 0;
};

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
    std::string party = {};
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
