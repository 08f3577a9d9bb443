#include "runner/engine/shares/sampling_share.h"

#include <algorithm>
#include <tuple>

namespace quire::runner::engine {

void SamplingShare::FindParties(std::span<Sequence> sequences) {
  for (const Party& party : parties_) {
    if (party.uncharged != Time::zero()) accounts_.Charge(party.id, party.uncharged.count());
  }
  parties_.clear();
  std::ranges::sort(sequences, {}, [](const Sequence& one) {
    return std::tuple(one.party->number(), !one.samples, one.last_sampled, one.index);
  });
  for (Sequence& sequence : sequences) {
    sequence.sits_out = false;
    if (parties_.empty() || parties_.back().id != *sequence.party) parties_.emplace_back(*sequence.party);
    if (!sequence.samples) continue;
    Party& party = parties_.back();
    if (party.next.empty()) party.next = std::span(&sequence, 0);
    party.next = std::span(party.next.data(), party.next.size() + 1);
    party.needs += CostOf(sequence);
  }
}

SamplingShare::Time SamplingShare::Delay() {
  const auto per_weight = [](const Party& party) { return party.needs / party.id.weight(); };
  std::ranges::sort(parties_, {}, per_weight);
  int64_t weights = 0;
  for (const Party& party : parties_) weights += party.id.weight();
  Time left = allowance_;
  held_.clear();
  for (const Party& party : parties_) {
    const int32_t weight = party.id.weight();
    if (parties_.size() > 1 && party.needs > left * weight / weights) {
      held_.push_back(party.id);
      for (Sequence& sequence : party.next) sequence.sits_out = true;
      continue;
    }
    left -= party.needs;
    weights -= weight;
  }
  return left;
}

void SamplingShare::Plan(std::span<Sequence> sequences) {
  FindParties(sequences);
  const Time granted = Delay();
  accounts_.SetActive(held_);
  bool any_goes_on = std::ranges::any_of(
      sequences, [](const Sequence& one) { return one.samples ? !one.sits_out : !one.waits; });
  if (!any_goes_on) overdrawn_ = Time::zero();  // those held so far took it from nobody
  Time left = granted - overdrawn_;
  const auto has_more = [this](const fair::PartyId& id) { return !PartyOf(id).next.empty(); };
  while (left > Time::zero() || !any_goes_on) {
    const fair::PartyId* const id = accounts_.Next(has_more);
    if (id == nullptr) break;
    Party& party = PartyOf(*id);
    Sequence& next = party.next.front();
    party.next = party.next.subspan(1);
    next.sits_out = false;
    any_goes_on = true;
    const Time cost = CostOf(next);
    accounts_.Charge(party.id, cost.count());
    party.uncharged -= cost;
    left -= cost;
  }
}

void SamplingShare::Charge(const fair::PartyId& id, Time took) {
  if (parties_.size() < 2) return;  // it is alone
  PartyOf(id).uncharged += took;
  overdrawn_ += took;
}

void SamplingShare::EndStep(Time computed) {
  overdrawn_ = std::max(overdrawn_ - allowance_, Time::zero());
  allowance_ = std::max(computed, kStepMin);
}

}  // namespace quire::runner::engine
