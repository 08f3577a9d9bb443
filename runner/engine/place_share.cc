#include "runner/engine/place_share.h"

#include <algorithm>
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

}  // namespace

std::optional<size_t> PlaceToGive(std::span<const Place> running, std::string_view party) {
  if (const auto stalled = Youngest(running, [](const Place& place) { return place.stalled; }))
    return stalled;
  std::unordered_map<std::string_view, size_t> counts;
  for (const Place& place : running) ++counts[place.party];
  if (counts.contains(party)) return std::nullopt;
  size_t most = 1;
  for (const auto& [name, count] : counts) most = std::max(most, count);
  if (most == 1) return std::nullopt;
  return Youngest(running, [&](const Place& place) { return counts[place.party] == most; });
}

}  // namespace quire::runner::engine
