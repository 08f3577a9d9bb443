// Which running sequences sit out of the next step because choosing their tokens takes long.
//
// The engine thread chooses and appends the tokens of one sequence after another, and the request decides
// what that takes: a sampler that sorts the vocabulary, a grammar, stop strings. While several parties run,
// the time that they spend on it in a step is bounded by the time of the step's other work and one token, and
// on average without that token, so that a stream's gap is at most twice what it is beside a cheap sampler.
// Who needs no more than its part of that time never waits; the others take turns in what is left. A token
// whose time nobody knows, as a first one, counts as a whole step. A party alone is never held back, and
// something always goes on. Which step a token belongs to does not change it.
//
// No clock: times are given. Engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "api/base/fair/party.h"
#include "runner/engine/shares/party_accounts.h"

namespace quire::runner::engine {

class SamplingShare {
 public:
  using Time = std::chrono::nanoseconds;
  // A step's sampling may take this in any case.
  static constexpr Time kStepMin = std::chrono::milliseconds(10);

  // A running sequence whose reader takes its tokens.
  struct Sequence {
    size_t index = 0;  // of the caller's
    const fair::PartyId* party = nullptr;
    bool samples = false;       // the next step may sample its next token
    bool waits = false;         // else: nothing of it is computed, but its party is there
    Time cost{};                // of its next token, by its last one or others like it; 0: unknown
    uint64_t last_sampled = 0;  // the number of that step, or of the one before its first
    bool sits_out = false;      // set by Plan(): its next token is not sampled
  };

  // Before a step. Of parties that may sample only some of their sequences those go first that have waited
  // longest. Reorders the sequences.
  void Plan(std::span<Sequence> sequences);
  // A sequence of a planned party was sampled.
  void Charge(const fair::PartyId& party, Time took);
  // `computed`: what the step took beside sampling.
  void EndStep(Time computed);

  size_t accounts() const { return accounts_.size(); }

 private:
  struct Party {
    fair::PartyId id;
    std::span<Sequence> next = {};  // of it, those that it may yet sample
    Time needs{};
    Time uncharged{};  // of the step; negative: what it was charged and has not spent
  };
  Party& PartyOf(const fair::PartyId& id) { return *std::ranges::find(parties_, id, &Party::id); }
  Time CostOf(const Sequence& sequence) const {
    return sequence.cost > Time::zero() ? sequence.cost : allowance_;
  }
  void FindParties(std::span<Sequence> sequences);
  Time Delay();  // those that need more than their part; what the others leave them

  static constexpr Time kTokenTime = std::chrono::milliseconds(50);  // one that sorts a large vocabulary

  PartyAccounts accounts_{kTokenTime.count()};
  std::vector<Party> parties_;       // of this step
  std::vector<fair::PartyId> held_;  // of them
  Time allowance_ = kStepMin;        // of all parties in this step
  Time overdrawn_{};                 // what parties beside others have had beyond the allowances so far
};

}  // namespace quire::runner::engine
