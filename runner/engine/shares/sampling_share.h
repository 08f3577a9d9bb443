// Which running sequences sit out of the next step because choosing their tokens takes long.
//
// The engine thread chooses and appends the tokens of one sequence after another, and the request decides
// what that takes: a sampler that sorts the vocabulary, a grammar, stop strings. While several parties run,
// the time that they spend on it in a step is bounded by the time of the step's other work and one token, and
// on average without that token, so that a stream's gap is at most twice what it is beside a cheap sampler.
// That time is divided by weight; who needs less than its part leaves the rest to the others and never waits.
// A party that took more is in debt and sits out until its parts have paid it; one whose turn another's token
// took has credit. Parties that leave in debt share one part until it is paid, so that the debts of many take
// no more from a step than that of one. A token whose time nobody knows, as a first one, counts as a whole
// step: at most one of those is chosen beside the parties that need less than their part. A party alone is
// never held back, and of several in debt one always goes on. Which step a token belongs to does not change
// it.
//
// No clock: times are given. Engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace quire::runner::engine {

class SamplingShare {
 public:
  using Time = std::chrono::nanoseconds;
  // A step's sampling may take this in any case.
  static constexpr Time kStepMin = std::chrono::milliseconds(10);
  // Bounds the debts of parties that left; beyond it the least debts are forgotten.
  static constexpr size_t kDebtorsMax = 256;

  // A running sequence whose reader takes its tokens.
  struct Sequence {
    size_t index = 0;  // of the caller's
    const std::string* party = nullptr;
    double weight = 1;          // of the party
    bool samples = false;       // the next step may sample its next token
    bool waits = false;         // else: nothing of it is computed, but its party is there
    Time cost{};                // of its next token, by its last one or others like it; 0: unknown
    uint64_t last_sampled = 0;  // the number of that step, or of the one before its first
    bool sits_out = false;      // set by Plan(): its next token is not sampled
  };

  // Before a step. Of parties that may sample only some of their sequences those go first that have waited
  // longest.
  void Plan(std::span<Sequence> sequences);
  // A sequence of a planned party was sampled.
  void Charge(const std::string& party, Time took);
  // `computed`: what the step took beside sampling.
  void EndStep(Time computed);

  size_t accounts() const { return accounts_.size(); }  // of parties that run, or are in debt

 private:
  struct Account {
    Time debt{};   // negative: credit
    Time spent{};  // in this step
    uint64_t step = 0;
  };
  struct Party {
    const std::string* name = nullptr;  // null: all that left in debt
    Account* account = nullptr;
    double weight = 1;
    Time predicted{};
    Time room{};            // for sampling in this step
    Time left{};            // of it
    bool holds = false;     // not all of its sequences go on
    bool deferred = false;  // some sit out though it has room
    // Credit is for a later step in which others leave it room: it does not lower a part.
    Time Need() const { return predicted + (account == nullptr ? Time{} : std::max(account->debt, Time{})); }
  };
  Party& PartyOf(const Sequence& sequence);
  Time CostOf(const Sequence& sequence) const;
  void AddDebtors();
  void PayDebtors(Time paid);
  void DivideStep();
  void Grant(Party& party, Time granted);
  bool Choose(std::span<Sequence> sequences);  // false: all sit out

  std::unordered_map<std::string, Account> accounts_;
  std::vector<Party> parties_;  // of this step
  std::vector<size_t> order_;
  Time allowance_ = kStepMin;  // of all parties in this step
  Time step_left_{};           // of it, for parties that hold sequences back
  uint64_t steps_ = 0;
};

}  // namespace quire::runner::engine
