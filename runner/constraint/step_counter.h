// Counts the characters of a string, or the items of a list, beside the automaton that reads it: the
// automaton needs no state for each count.
//
// Some transitions of the automaton are steps. A text matches when its steps are within bounds. For each
// state the counter knows with how many more steps a text can still match: from some number on that repeats
// with a period, which is 1 unless a pattern has its characters in groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "runner/constraint/automaton.h"

namespace quire::runner::constraint {

// Immutable, any thread.
class StepCounter {
 public:
  // Whether a transition is a step: by a byte, or by a call of a rule.
  struct Steps {
    std::function<bool(StateId to)> byte;
    bool calls = false;
  };
  // kUnsupported when the numbers of steps that are possible take too much memory.
  static api::Result<StepCounter> Make(const Dfa& dfa, const Steps& steps, Lengths bounds);

  // Whether a text can still match that is in this state after `count` steps. States are the automaton's.
  bool MayContinue(StateId state, uint32_t count) const;
  // A count that stands for `count`: as long as at most `steps` steps follow, whether a text can match is the
  // same.
  uint32_t Representative(uint32_t count, uint32_t steps) const;
  size_t bytes() const { return next_.size() * sizeof(uint32_t); }

 private:
  StepCounter() = default;
  uint64_t NextLength(StateId state, uint64_t least) const;

  Lengths bounds_;
  uint32_t preperiod_ = 0;
  uint32_t period_ = 1;
  // [states, preperiod + period] the least number of further steps, from this one on, with which a text can
  // match.
  std::vector<uint32_t> next_;
};

// For the automaton of a JSON string with its quotes: true for the states that lie between two characters,
// within the quotes.
std::vector<bool> StatesBetweenCharacters(const Dfa& string);

}  // namespace quire::runner::constraint
