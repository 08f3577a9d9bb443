#include "runner/engine/place_share.h"

#include <algorithm>
#include <unordered_map>

namespace quire::runner::engine {
namespace {

// The youngest that `may` give its place and can be computed again.
template <class May>
std::optional<size_t> Youngest(std::span<const Place> running, May may) {
  std::optional<size_t> youngest;
  for (size_t i = 0; i < running.size(); ++i) {
    if (!running[i].exact || !may(running[i])) continue;
    if (!youngest || running[i].arrival > running[*youngest].arrival) youngest = i;
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
