#include "runner/engine/shares/place_rotation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace quire::runner::engine {
namespace {

using Candidates = std::span<const RotationCandidate>;

std::set<PartyMember> OwnersThatHaveRun(Candidates waiting) {
  std::set<PartyMember> owners;
  for (const RotationCandidate& candidate : waiting) {
    if (candidate.has_run) owners.insert(candidate.owner);
  }
  return owners;
}

void SortByUrgency(std::vector<size_t>& order, Candidates waiting, bool oldest_first) {
  const auto urgency = [&](size_t i) {
    const RotationCandidate& candidate = waiting[i];
    if (oldest_first) return std::tuple(uint64_t{0}, false, candidate.waits_since);
    return std::tuple(
        WorkClass(candidate.work), candidate.has_run,
        candidate.has_run ? candidate.waits_since : std::numeric_limits<uint64_t>::max() - candidate.arrival);
  };
  std::ranges::sort(order, {}, urgency);
}

// The places of `order` that the candidate needs. Empty: they are not enough.
std::vector<size_t> PlacesFor(const RotationCandidate& candidate, std::span<const Place> running,
                              const std::vector<size_t>& order, size_t bytes_left) {
  std::vector<size_t> leaving;
  size_t bytes = bytes_left;
  for (const size_t i : order) {
    const Place& place = running[i];
    const bool frees = place.leaving != Leaving::kPaused;
    if ((candidate.has_run && !place.produced) || (!frees && !leaving.empty())) continue;
    leaving.push_back(i);
    bytes += frees ? place.bytes : 0;
    if (bytes >= candidate.bytes) return leaving;
  }
  // Where all leave, nobody is left whose memory could be waited for. They have more of it than is counted:
  // answers grow.
  const bool all_free =
      std::ranges::all_of(leaving, [&](size_t i) { return running[i].leaving != Leaving::kPaused; });
  if (leaving.size() == running.size() && all_free) return leaving;
  return {};
}

// In the order in which they are given up: that which was given longest ago first, but those that come back
// with other bits last, or not at all.
std::vector<size_t> PlacesOfScope(const PlaceRotation::Scope& scope, std::span<const Place> running,
                                  bool exact) {
  std::vector<size_t> places;
  for (size_t i = 0; i < running.size(); ++i) {
    const bool takes_part = scope.all || running[i].party == scope.party;
    if (takes_part && (!exact || running[i].leaving != Leaving::kInexact)) places.push_back(i);
  }
  std::ranges::sort(places, {}, [&](size_t i) {
    return std::pair(running[i].leaving == Leaving::kInexact, running[i].given);
  });
  return places;
}

int64_t PlacesOf(const PlaceRotation::Scope& scope, std::span<const Place> running) {
  if (scope.all) return std::ssize(running);
  return static_cast<int64_t>(PlaceCounts(running).OfParty(scope.party));
}

}  // namespace

PlaceRotation::State PlaceRotation::StateOf(const Scope& scope) const {
  const auto found = scopes_.find(scope);
  return found == scopes_.end() ? State{} : found->second;
}

std::optional<PlaceRotation::Handover> PlaceRotation::Choose(std::span<const Place> running,
                                                             Candidates waiting, size_t bytes_left,
                                                             Time now) const {
  const PlaceCounts counts(running);
  const auto have_run = OwnersThatHaveRun(waiting);
  std::map<Scope, std::vector<size_t>> scopes;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const PartyMember& owner = waiting[i].owner;
    const bool all = counts.OfParty(owner.party) == 0;
    // Who has more than one gives it up at once, by PlaceToGive().
    if (counts.Of(owner) > 0 || (!waiting[i].has_run && have_run.contains(owner))) continue;
    if ((all ? counts.LargestParty() : counts.LargestMemberOf(owner.party)) != 1) continue;
    scopes[Scope{all, all ? std::string() : std::string(owner.party)}].push_back(i);
  }
  for (auto& [scope, candidates] : scopes) {
    const State state = StateOf(scope);
    if (now < state.next) continue;
    SortByUrgency(candidates, waiting, state.handovers % kOldestEvery == kOldestEvery - 1);
    for (const bool exact : {true, false}) {
      const std::vector<size_t> places = PlacesOfScope(scope, running, exact);
      for (const size_t next : candidates) {
        if (!exact && waiting[next].has_run) continue;
        auto leaving = PlacesFor(waiting[next], running, places, bytes_left);
        if (!leaving.empty()) return Handover{next, std::move(leaving), scope};
      }
    }
  }
  return std::nullopt;
}

void PlaceRotation::Record(const Scope& scope, std::span<const Place> running, Time now) {
  std::erase_if(scopes_, [&](const auto& entry) { return entry.second.next + kTimeSlice < now; });
  State& state = scopes_[scope];
  ++state.handovers;
  state.next = now + time_slice_ / std::max(PlacesOf(scope, running), kPlacesMin);
}

}  // namespace quire::runner::engine
