#include "api/base/fair/quota.h"

#include <algorithm>
#include <map>

#include "api/base/mutex.h"

namespace quire::fair {
namespace {

bool Exceeds(uint64_t others, uint64_t amount, uint64_t limit) {
  return others > limit || amount > limit - others;
}

// What one holds for each unit of its weight.
double PerWeight(uint64_t amount, const PartyId& party) {
  return static_cast<double>(amount) / party.weight();
}

}  // namespace

struct Quota::State {
  struct Holding {
    PartyId party;
    Amount amount = {};
  };

  Amount AmountOf(uint64_t bytes) const REQUIRES(mutex) { return {bytes, bytes > limits.small ? bytes : 0}; }
  Amount HoldingOf(const PartyId& party) const REQUIRES(mutex) {
    const auto found = parties.find(party.number());
    return found == parties.end() ? Amount() : found->second.amount;
  }

  // Why the lease may not grow.
  std::optional<Bound> BoundOf(const PartyId& party, const Amount& from, const Amount& to) const
      REQUIRES(mutex) {
    if (Exceeds(held.all - from.all, to.all, limits.total)) return Bound::kTotal;
    if (to.large == 0) return std::nullopt;
    if (Exceeds(held.large - from.large, to.large, limits.large)) return Bound::kLarge;
    const uint64_t own = HoldingOf(party).large - from.large;
    const uint64_t others = held.large - from.large - own;
    if (!Exceeds(own, to.large, limits.party) && LeavesRoom(party, own + to.large, others))
      return std::nullopt;
    return own == 0 ? Bound::kLarge : Bound::kParty;
  }

  // Others with little take nothing from it.
  bool LeavesRoom(const PartyId& party, uint64_t own, uint64_t others) const REQUIRES(mutex) {
    if (!limits.leaves_room || others <= limits.large / 16) return true;
    const uint64_t left = limits.large - others - own;
    return PerWeight(own, party) <= 2 * static_cast<double>(left);
  }

  PartyId OverShare(const PartyId& asks, uint64_t more) const REQUIRES(mutex) {
    const uint64_t own = HoldingOf(asks).all;
    double weights = own == 0 ? asks.weight() : 0;
    for (const auto& [number, holding] : parties) weights += holding.party.weight();
    double largest = std::max(static_cast<double>(limits.total) / weights, PerWeight(own + more, asks));
    PartyId over;
    for (const auto& [number, holding] : parties) {
      const double has = PerWeight(holding.amount.all, holding.party);
      if (has <= largest) continue;
      largest = has;
      over = holding.party;
    }
    return over;
  }

  std::optional<Refusal> RefusalFor(const PartyId& party, const Amount& from, uint64_t to) const
      REQUIRES(mutex) {
    const auto bound = to <= from.all ? std::nullopt : BoundOf(party, from, AmountOf(to));
    if (!bound) return std::nullopt;
    return Refusal{*bound, OverShare(party, to - from.all)};
  }

  void Set(const PartyId& party, Amount& holds, uint64_t to_all) REQUIRES(mutex) {
    const Amount to = AmountOf(to_all);
    const auto entry = parties.try_emplace(party.number(), Holding{.party = party}).first;
    for (Amount* sum : {&entry->second.amount, &held}) {
      sum->all += to.all - holds.all;
      sum->large += to.large - holds.large;
    }
    if (entry->second.amount.all == 0) parties.erase(entry);
    holds = to;
  }

  mutable api::Mutex mutex;
  QuotaLimits limits GUARDED_BY(mutex);
  Amount held GUARDED_BY(mutex);
  std::map<uint64_t, Holding> parties GUARDED_BY(mutex);  // by number; those that hold something
};

Quota::Quota(const QuotaLimits& limits) : state_(std::make_shared<State>()) { SetLimits(limits); }

void Quota::SetLimits(const QuotaLimits& limits) {
  const api::MutexLock lock(state_->mutex);
  state_->limits = limits;
}

uint64_t Quota::held() const {
  const api::MutexLock lock(state_->mutex);
  return state_->held.all;
}

uint64_t Quota::HoldingOf(const PartyId& party) const {
  const api::MutexLock lock(state_->mutex);
  return state_->HoldingOf(party).all;
}

Quota::Lease& Quota::Lease::operator=(Lease&& other) noexcept {
  ShrinkTo(0);
  state_ = std::move(other.state_);
  party_ = std::move(other.party_);
  holds_ = std::exchange(other.holds_, {});
  return *this;
}

std::optional<Quota::Refusal> Quota::Lease::GrowTo(uint64_t amount) {
  const api::MutexLock lock(state_->mutex);
  if (auto refusal = state_->RefusalFor(party_, holds_, amount)) return refusal;
  if (amount > holds_.all) state_->Set(party_, holds_, amount);
  return std::nullopt;
}

std::optional<Quota::Refusal> Quota::Lease::RefusalFor(uint64_t amount) const {
  const api::MutexLock lock(state_->mutex);
  return state_->RefusalFor(party_, holds_, amount);
}

void Quota::Lease::SetTo(uint64_t amount) {
  const api::MutexLock lock(state_->mutex);
  state_->Set(party_, holds_, amount);
}

void Quota::Lease::ShrinkTo(uint64_t amount) {
  if (amount >= holds_.all) return;  // also one of no quota
  const api::MutexLock lock(state_->mutex);
  state_->Set(party_, holds_, amount);
}

}  // namespace quire::fair
