// What parties have had of what is shared in the steps of an engine, in an order of the governor.
//
// Steps are planned before anybody knows what they cost, and one has work of many parties. So parties take no
// turns here, as in a fair::FairQueue: the planner asks for the next one, and charges what it likes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "api/base/fair/fair_order.h"
#include "api/base/fair/party.h"

namespace quire::runner::engine {

// One thread. Costs are of any unit; up to some `quantum` each.
class PartyAccounts {
 public:
  explicit PartyAccounts(int64_t quantum) : order_(quantum) {}

  // Those that compete from now on. Others gain nothing meanwhile and hold nobody back; what they owe stays.
  void SetActive(std::span<const fair::PartyId> parties);
  // Below 0: it was charged too much.
  void Charge(const fair::PartyId& party, int64_t cost);
  // Costs divided by the weight: the least is next. One that begins is next until it is charged, and has had
  // what the others have on average then.
  double TimeOf(const fair::PartyId& party) const;
  // It did not compete, has had no more than its share and was not charged since.
  bool Begins(const fair::PartyId& party) const;
  // The next one of the active ones that `may_go`. Null: there is none.
  template <class MayGo>
  const fair::PartyId* Next(MayGo may_go) {
    const auto* const next = static_cast<const Party*>(order_.First(
        [&](const fair::FairOrder::Account& one) { return may_go(static_cast<const Party&>(one).id); }));
    return next == nullptr ? nullptr : &next->id;
  }

  size_t size() const { return parties_.size(); }  // that compete, or owe something

 private:
  struct Party : fair::FairOrder::Account {
    explicit Party(const fair::PartyId& party) : Account{.weight = party.weight()}, id(party) {}
    const fair::PartyId id;
    bool active = false;
    uint64_t charged_in = 0;  // the last round: it is kept for another, so that steps allocate nothing
  };

  double LeastTime() const;

  fair::FairOrder order_;
  std::map<uint64_t, Party> parties_;  // by number
  uint64_t rounds_ = 1;                // calls of SetActive(), and one
  mutable std::optional<double> least_time_;
};

}  // namespace quire::runner::engine
