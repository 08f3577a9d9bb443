#include "runner/engine/place_share.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace quire::runner::engine {
namespace {

// The youngest that `may` give its place; rather one that can be computed again.
template <class May>
std::optional<size_t> Youngest(std::span<const Place> running, May may) {
  const auto rank = [](const Place& place) { return std::pair(place.exact, place.arrival); };
  std::optional<size_t> youngest;
  for (size_t i = 0; i < running.size(); ++i) {
    if (!may(running[i])) continue;
    if (!youngest || rank(running[i]) > rank(running[*youngest])) youngest = i;
  }
  return youngest;
}

using Counts = std::unordered_map<std::string_view, size_t>;

Counts CountParties(std::span<const Place> running) {
  Counts counts;
  for (const Place& place : running) ++counts[place.party];
  return counts;
}

}  // namespace

std::optional<size_t> PlaceToGive(std::span<const Place> running, std::string_view party) {
  if (const auto stalled = Youngest(running, [](const Place& place) { return place.stalled; }))
    return stalled;
  Counts counts = CountParties(running);
  if (counts.contains(party)) return std::nullopt;
  size_t most = 1;
  for (const auto& [name, count] : counts) most = std::max(most, count);
  if (most == 1) return std::nullopt;
  return Youngest(running, [&](const Place& place) { return counts[place.party] == most; });
}

std::vector<size_t> PlacesToGive(std::span<const Place> running, std::string_view party, size_t bytes) {
  std::vector<Place> left(running.begin(), running.end());
  std::vector<size_t> indexes(running.size());
  std::iota(indexes.begin(), indexes.end(), size_t{0});
  std::vector<size_t> given;
  for (size_t freed = 0; given.empty() || freed < bytes;) {
    const auto next = PlaceToGive(left, party);
    if (!next) return {};
    const auto at = static_cast<ptrdiff_t>(*next);
    freed += left[*next].bytes;
    given.push_back(indexes[*next]);
    left.erase(left.begin() + at);
    indexes.erase(indexes.begin() + at);
  }
  return given;
}

size_t PlaceToPreempt(std::span<const Place> running) {
  Counts counts = CountParties(running);
  const auto rank = [&counts](const Place& place) {
    return std::tuple(place.stalled, place.exact, counts[place.party], place.arrival);
  };
  return static_cast<size_t>(std::ranges::max_element(running, {}, rank) - running.begin());
}

}  // namespace quire::runner::engine
