#include "runner/engine/sampling_share.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace quire::runner::engine {

SamplingShare::Party& SamplingShare::PartyOf(const Sequence& sequence) {
  const auto found =
      std::ranges::find_if(parties_, [&](const Party& party) { return *party.name == *sequence.party; });
  if (found != parties_.end()) return *found;
  Account& account = accounts_[*sequence.party];
  account.step = steps_;
  return parties_.emplace_back(sequence.party, &account, sequence.weight);
}

SamplingShare::Time SamplingShare::CostOf(const Sequence& sequence, const Party& party) {
  return sequence.cost > Time::zero() ? sequence.cost : party.account->typical;
}

void SamplingShare::Plan(std::span<Sequence> sequences) {
  ++steps_;
  parties_.clear();
  for (Sequence& sequence : sequences) {
    sequence.sits_out = false;
    Party& party = PartyOf(sequence);
    if (sequence.decodes) party.predicted += CostOf(sequence, party);
  }
  RemoveAbsent();
  if (parties_.size() < 2) {
    for (Party& party : parties_) {
      party.account->debt = Time::zero();
      party.room = Time::max();
    }
    return;
  }
  do {
    DivideStep();
  } while (!Choose(sequences));
}

// Leaving pays nothing off but what the steps since do.
void SamplingShare::RemoveAbsent() {
  if (accounts_.size() == parties_.size()) return;
  for (auto entry = accounts_.begin(); entry != accounts_.end();) {
    Account& account = entry->second;
    const bool absent = account.step != steps_;
    if (absent) account.debt -= allowance_;
    entry = absent && account.debt <= Time::zero() ? accounts_.erase(entry) : std::next(entry);
  }
}

void SamplingShare::DivideStep() {
  double weights = 0;
  for (const Party& party : parties_) weights += party.weight;
  std::ranges::sort(parties_, {}, [](const Party& party) {
    return static_cast<double>(party.Need().count()) / party.weight;
  });
  Time left = allowance_;
  for (Party& party : parties_) {
    const auto part = static_cast<int64_t>(static_cast<double>(left.count()) * party.weight / weights);
    const Time granted = std::min(party.Need(), Time(part));
    weights -= party.weight;
    left -= granted;
    party.holds = party.Need() > granted;
    party.room = std::max(granted - party.account->debt, Time::zero());
    party.account->debt -= std::min(granted, party.account->debt);
  }
}

bool SamplingShare::Choose(std::span<Sequence> sequences) {
  order_.resize(sequences.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::sort(order_, {}, [&](size_t i) { return std::pair(sequences[i].last_sampled, i); });
  left_.clear();
  for (const Party& party : parties_) left_.push_back(party.room);
  bool any = false;
  for (const size_t i : order_) {
    Sequence& sequence = sequences[i];
    const Party& party = PartyOf(sequence);
    Time& room = left_[static_cast<size_t>(&party - parties_.data())];
    sequence.sits_out = party.holds && room <= Time::zero();
    if (sequence.sits_out) continue;
    any = true;
    if (sequence.decodes) room -= CostOf(sequence, party);
  }
  return any;
}

void SamplingShare::Charge(const std::string& party, Time took) {
  Account& account = accounts_.at(party);
  account.spent += took;
  account.most = std::max(account.most, took);
}

void SamplingShare::EndStep(Time computed) {
  for (Party& party : parties_) {
    Account& account = *party.account;
    const Time spent = std::exchange(account.spent, {});
    if (const Time most = std::exchange(account.most, {}); most > Time::zero()) account.typical = most;
    account.debt += std::max(spent - party.room, Time::zero());
  }
  allowance_ = std::max(computed, kStepMin);
}

}  // namespace quire::runner::engine
