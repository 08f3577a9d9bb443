#include "runner/engine/shares/party_accounts.h"

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
  std::erase_if(parties_, [this](const auto& one) {
    return !one.second.active && (order_.idle() || !order_.Owes(one.second));
  });
}

void PartyAccounts::Charge(const fair::PartyId& id, int64_t cost) {
  Party& party = parties_.try_emplace(id.number(), id).first->second;
  const bool was_active = party.active;
  if (!was_active) order_.Enter(party);
  order_.StartTurn(party);
  order_.EndTurn(party, cost);
  if (!was_active) order_.Withdraw(party);
}

double PartyAccounts::TimeOf(const fair::PartyId& id) const {
  const auto found = parties_.find(id.number());
  return found == parties_.end() ? order_.TimeOf({}) : order_.TimeOf(found->second);
}

}  // namespace quire::runner::engine
