// Which running sequences sit out of the next step because choosing their tokens takes long.
//
// The engine thread chooses and appends the tokens of one sequence after another, and the request decides what that takes: a
// sampler that sorts the vocabulary, a grammar, stop strings. While several parties run, the time that they spend on it in a
// step is bounded by the time of the step's other work, so that a stream's gap is at most twice what it is beside a cheap
// sampler. That time is divided by weight; who needs less than its part leaves the rest to the others. A party that took more
// is in debt and sits out until its parts have paid it. A party alone is never held back, and of several in debt one always
// goes on. Which step a token belongs to does not change it.
//
// No clock: times are given. Engine thread only.
#pragma once

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

  // A running sequence that can go on.
  struct Sequence {
    size_t index = 0;  // of the caller's
    const std::string* party = nullptr;
    double weight = 1;          // of the party
    bool decodes = false;       // the next step samples its next token
    Time cost{};                // of its last token; 0: none was sampled
    uint64_t last_sampled = 0;  // the number of that step
    bool sits_out = false;      // set by Plan()
  };

  // Before a step. Of a party that may sample only some of its sequences those go first that have waited longest.
  void Plan(std::span<Sequence> sequences);
  // A sequence of a planned party was sampled.
  void Charge(const std::string& party, Time took);
  // `computed`: what the step took beside sampling.
  void EndStep(Time computed);

  size_t accounts() const { return accounts_.size(); }  // of parties that run, or are in debt

 private:
  struct Account {
    Time debt{};
    Time typical{};  // the most that a token of it took in the last step that sampled one
    Time spent{};    // in this step
    Time most{};     // of one token in this step
    uint64_t step = 0;
  };
  struct Party {
    const std::string* name = nullptr;
    Account* account = nullptr;
    double weight = 1;
    Time predicted{};
    Time room{};         // for sampling in this step
    bool holds = false;  // not all of its sequences go on
    Time Need() const { return account->debt + predicted; }
  };
  Party& PartyOf(const Sequence& sequence);
  static Time CostOf(const Sequence& sequence, const Party& party);
  void RemoveAbsent();
  void DivideStep();
  bool Choose(std::span<Sequence> sequences);  // false: all sit out

  std::unordered_map<std::string, Account> accounts_;
  std::vector<Party> parties_;  // of this step
  std::vector<size_t> order_;
  std::vector<Time> left_;     // of each party's room
  Time allowance_ = kStepMin;  // of all parties in this step
  uint64_t steps_ = 0;
};

}  // namespace quire::runner::engine
