#include "runner/engine/shares/sampling_share.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace quire::runner::engine {

SamplingShare::Party& SamplingShare::PartyOf(const Sequence& sequence) {
  const auto found = std::ranges::find_if(
      parties_, [&](const Party& party) { return party.name != nullptr && *party.name == *sequence.party; });
  if (found != parties_.end()) return *found;
  Account& account = accounts_[*sequence.party];
  account.step = steps_;
  Party& party = parties_.emplace_back();
  party.name = sequence.party;
  party.account = &account;
  party.weight = sequence.weight;
  return party;
}

SamplingShare::Time SamplingShare::CostOf(const Sequence& sequence) const {
  return sequence.cost > Time::zero() ? sequence.cost : allowance_;
}

void SamplingShare::Plan(std::span<Sequence> sequences) {
  ++steps_;
  parties_.clear();
  for (Sequence& sequence : sequences) {
    sequence.sits_out = false;
    Party& party = PartyOf(sequence);
    if (sequence.samples) party.predicted += CostOf(sequence);
  }
  const size_t present = parties_.size();
  if (present == 0) {
    accounts_.clear();
    return;
  }
  AddDebtors();
  DivideStep();
  if (present > 1) {
    while (!Choose(sequences)) DivideStep();
    return;
  }
  for (Party& party : parties_) {
    if (party.account == nullptr) continue;
    party.account->debt = Time::zero();
    party.room = Time::max();
  }
}

// Leaving pays nothing off but what the steps since leave.
void SamplingShare::AddDebtors() {
  const auto is_absent = [this](const auto& entry) { return entry.second.step != steps_; };
  std::erase_if(accounts_,
                [&](const auto& entry) { return is_absent(entry) && entry.second.debt <= Time::zero(); });
  const auto least = [&] {
    return std::ranges::min_element(
        accounts_, {}, [&](const auto& entry) { return is_absent(entry) ? entry.second.debt : Time::max(); });
  };
  auto absent = static_cast<size_t>(std::ranges::count_if(accounts_, is_absent));
  for (; absent > kDebtorsMax; --absent) accounts_.erase(least());
  if (absent == 0) return;
  Party& debtors = parties_.emplace_back();
  for (const auto& entry : accounts_) {
    if (is_absent(entry)) debtors.predicted += entry.second.debt;
  }
}

void SamplingShare::PayDebtors(Time paid) {
  for (auto entry = accounts_.begin(); entry != accounts_.end() && paid > Time::zero();) {
    Account& account = entry->second;
    const bool absent = account.step != steps_;
    const Time now = absent ? std::min(account.debt, paid) : Time::zero();
    account.debt -= now;
    paid -= now;
    entry = absent && account.debt <= Time::zero() ? accounts_.erase(entry) : std::next(entry);
  }
}

void SamplingShare::DivideStep() {
  double weights = 0;
  for (const Party& party : parties_) weights += party.weight;
  std::ranges::sort(parties_, {}, [](const Party& party) {
    return static_cast<double>(party.Need().count()) / party.weight;
  });
  Time left = step_left_ = allowance_;
  for (Party& party : parties_) {
    const auto part = static_cast<int64_t>(static_cast<double>(left.count()) * party.weight / weights);
    const Time granted = std::min(party.Need(), Time(part));
    weights -= party.weight;
    left -= granted;
    Grant(party, granted);
  }
}

void SamplingShare::Grant(Party& party, Time granted) {
  if (party.account == nullptr) {
    PayDebtors(granted);
    party.predicted -= granted;
    return;
  }
  Time& debt = party.account->debt;
  // Several that have waited together must not go on together.
  party.holds = debt < Time::zero() || party.Need() > granted;
  const Time paid = std::clamp(debt, Time::zero(), granted);
  debt -= paid;
  party.room = granted - paid + std::max(-debt, Time::zero());
  if (!party.holds) step_left_ -= party.room;
}

bool SamplingShare::Choose(std::span<Sequence> sequences) {
  order_.resize(sequences.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::sort(order_, {}, [&](size_t i) { return std::pair(sequences[i].last_sampled, i); });
  for (Party& party : parties_) {
    party.left = party.room;
    party.deferred = false;
  }
  Time left = step_left_;
  bool any_sits_out = false, any_goes_on = false;
  for (const size_t i : order_) {
    Sequence& sequence = sequences[i];
    if (!sequence.samples) {
      any_goes_on |= !sequence.waits;
      continue;
    }
    Party& party = PartyOf(sequence);
    sequence.sits_out = party.holds && (party.left <= Time::zero() || left <= Time::zero());
    any_sits_out |= sequence.sits_out;
    any_goes_on |= !sequence.sits_out;
    if (sequence.sits_out) {
      party.deferred |= party.left > Time::zero();
    } else if (party.holds) {
      party.left -= CostOf(sequence);
      left -= CostOf(sequence);
    }
  }
  return any_goes_on || !any_sits_out;
}

void SamplingShare::Charge(const std::string& party, Time took) { accounts_.at(party).spent += took; }

void SamplingShare::EndStep(Time computed) {
  for (const Party& party : parties_) {
    if (party.account == nullptr) continue;
    Account& account = *party.account;
    const Time rest = party.room - std::exchange(account.spent, {});
    account.debt = std::max(account.debt, Time::zero());  // the room has the credit
    if (rest < Time::zero()) {
      account.debt -= rest;
    } else if (party.deferred) {
      account.debt = -std::min(rest, allowance_);
    }
  }
  allowance_ = std::max(computed, kStepMin);
}

}  // namespace quire::runner::engine
