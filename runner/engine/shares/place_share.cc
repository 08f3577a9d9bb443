#include "runner/engine/shares/place_share.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

namespace quire::runner::engine {

uint64_t WorkClass(int64_t work) { return std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(work, 1))); }

PlaceCounts::PlaceCounts(std::span<const Place> running) {
  for (const Place& place : running) {
    ++parties_[place.party];
    ++members_[{place.party, place.member}];
  }
}

size_t PlaceCounts::OfParty(std::string_view party) const {
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

size_t PlaceCounts::LargestMemberOf(std::string_view party) const {
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

}  // namespace quire::runner::engine
