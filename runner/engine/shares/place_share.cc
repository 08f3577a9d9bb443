#include "runner/engine/shares/place_share.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace quire::runner::engine {

uint64_t WorkClass(int64_t work) { return std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(work, 1))); }

PlaceCounts::PlaceCounts(std::span<const Place> running) {
  for (const Place& place : running) {
    ++parties_[place.party];
    ++members_[{place.party, place.member}];
  }
}

size_t PlaceCounts::OfParty(uint64_t party) const {
  const auto found = parties_.find(party);
  return found == parties_.end() ? 0 : found->second;
}

size_t PlaceCounts::Of(const PartyMember& owner) const {
  const auto found = members_.find(owner);
  return found == members_.end() ? 0 : found->second;
}

size_t PlaceCounts::LargestParty() const {
  size_t most = 0;
  for (const auto& [party, count] : parties_) most = std::max(most, count);
  return most;
}

size_t PlaceCounts::LargestMemberOf(uint64_t party) const {
  size_t most = 0;
  for (auto at = members_.lower_bound({party}); at != members_.end() && at->first.party == party; ++at)
    most = std::max(most, at->second);
  return most;
}

std::optional<size_t> PlaceToGive(std::span<const Place> running, const PartyMember& owner) {
  const PlaceCounts counts(running);
  const bool stalled = std::ranges::any_of(running, &Place::stalled);
  if (!stalled && (running.empty() || counts.Of(owner) > 0)) return std::nullopt;
  const bool idle_party = counts.OfParty(owner.party) == 0;
  const auto rank = [&](const Place& place) {
    if (stalled) return std::tuple(place.stalled, size_t{0}, size_t{0}, place.exact, place.arrival);
    return std::tuple(idle_party || place.party == owner.party, counts.OfParty(place.party),
                      counts.Of({place.party, place.member}), place.exact, place.arrival);
  };
  const auto first = std::ranges::max_element(running, {}, rank);
  const auto [may, of_party, of_member, exact, arrival] = rank(*first);
  if (!stalled && (idle_party ? of_party : of_member) <= 1) return std::nullopt;
  return static_cast<size_t>(first - running.begin());
}

std::vector<size_t> PlacesToGive(std::span<const Place> running, const PartyMember& owner, size_t bytes) {
  std::vector<Place> left(running.begin(), running.end());
  std::vector<size_t> indexes(running.size());
  std::iota(indexes.begin(), indexes.end(), size_t{0});
  std::vector<size_t> given;
  for (size_t freed = 0; given.empty() || freed < bytes;) {
    const auto next = PlaceToGive(left, owner);
    // Where all give theirs, as stalled ones do, nobody is left whose memory could be waited for.
    if (!next) return left.empty() ? given : std::vector<size_t>{};
    const auto at = static_cast<ptrdiff_t>(*next);
    freed += left[*next].bytes;
    given.push_back(indexes[*next]);
    left.erase(left.begin() + at);
    indexes.erase(indexes.begin() + at);
  }
  return given;
}

size_t PlaceToPreempt(std::span<const Place> running) {
  const PlaceCounts counts(running);
  const auto rank = [&counts](const Place& place) {
    return std::tuple(place.stalled, place.exact, counts.OfParty(place.party),
                      counts.Of({place.party, place.member}), WorkClass(place.work), place.arrival);
  };
  return static_cast<size_t>(std::ranges::max_element(running, {}, rank) - running.begin());
}

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
    scopes[Scope{all, all ? 0 : owner.party}].push_back(i);
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
