#include "runner/engine/shares/party_accounts.h"

#include <algorithm>
#include <limits>

namespace quire::runner::engine {

void PartyAccounts::SetActive(std::span<const fair::PartyId> parties) {
  for (auto& [number, party] : parties_) party.active = false;
  for (const fair::PartyId& id : parties) parties_.try_emplace(id.number(), id).first->second.active = true;
  for (auto& [number, party] : parties_) {
    if (party.waits && !party.active) order_.Withdraw(party);
  }
  for (auto& [number, party] : parties_) {
    if (party.active && !party.waits) order_.Enter(party);
  }
  least_time_.reset();
  const uint64_t before = rounds_++;
  std::erase_if(parties_, [&](const auto& one) {
    const Party& party = one.second;
    return !party.active && party.charged_in < before && (order_.idle() || !order_.Owes(party));
  });
}

void PartyAccounts::Charge(const fair::PartyId& id, int64_t cost) {
  Party& party = parties_.try_emplace(id.number(), id).first->second;
  least_time_.reset();
  party.charged_in = rounds_;
  if (!party.active) return order_.Charge(party, cost);
  order_.StartTurn(party);
  order_.EndTurn(party, cost);
}

double PartyAccounts::TimeOf(const fair::PartyId& id) const {
  const auto found = parties_.find(id.number());
  const double time = found == parties_.end() ? order_.TimeOf({}) : order_.TimeOf(found->second);
  return Begins(id) ? std::min(time, LeastTime() - 1) : time;
}

bool PartyAccounts::Begins(const fair::PartyId& id) const {
  const auto found = parties_.find(id.number());
  if (found == parties_.end()) return true;
  return found->second.active ? found->second.fresh : !order_.Owes(found->second);
}

// The least of those that compete and do not begin.
double PartyAccounts::LeastTime() const {
  if (least_time_) return *least_time_;
  least_time_ = std::numeric_limits<double>::infinity();
  for (const auto& [number, party] : parties_) {
    if (party.active && !party.fresh) least_time_ = std::min(*least_time_, order_.TimeOf(party));
  }
  return *least_time_;
}

}  // namespace quire::runner::engine
