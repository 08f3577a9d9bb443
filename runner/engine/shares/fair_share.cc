#include "runner/engine/shares/fair_share.h"

#include <algorithm>
#include <limits>

namespace quire::runner::engine {

double FairShare::Behind() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, party] : parties_) {
    if (!party.idle) least = std::min(least, party.state.virtual_time);
  }
  return least == std::numeric_limits<double>::infinity() ? floor_ : least;
}

void FairShare::SetIdle(Party& party, bool idle) const {
  if (party.idle && !idle) party.state.virtual_time = std::max(party.state.virtual_time, floor_);
  party.idle = idle;
}

void FairShare::Enter(const std::string& party, double weight) {
  floor_ = std::max(floor_, Behind());
  Party& entry = parties_[party];
  ++entry.requests;
  SetIdle(entry, false);
  entry.state.weight = weight;
}

void FairShare::Exit(const std::string& party) {
  Party& leaving = parties_.at(party);
  if (--leaving.requests == 0) leaving.idle = true;
  floor_ = std::max(floor_, Behind());
  // A party that is not ahead of the others would enter at the floor anyway.
  std::erase_if(parties_, [this](const auto& entry) {
    return entry.second.requests == 0 && entry.second.state.virtual_time <= floor_;
  });
  if (std::ranges::none_of(parties_, [](const auto& entry) { return entry.second.requests > 0; })) {
    parties_.clear();
    floor_ = 0;
  }
}

void FairShare::Update(std::span<const Request> requests) {
  floor_ = std::max(floor_, Behind());
  for (auto& [name, party] : parties_) party.goes_on = false;
  for (const Request& request : requests) {
    parties_.at(*request.party).goes_on |= request.goes_on;
  }
  for (auto& [name, party] : parties_) SetIdle(party, !party.goes_on);
}

void FairShare::Charge(const std::string& party, int64_t tokens) {
  PartyState& state = parties_.at(party).state;
  state.virtual_time += static_cast<double>(tokens) / state.weight;
}

PartyState FairShare::Of(const std::string& party) const {
  const auto found = parties_.find(party);
  return found != parties_.end() ? found->second.state : PartyState{.virtual_time = floor_};
}

}  // namespace quire::runner::engine
