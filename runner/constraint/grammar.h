// A compiled grammar: one automaton per rule, in one table, with calls between them.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/base/error.h"
#include "runner/constraint/automaton.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/step_counter.h"

namespace quire::runner::constraint {

using ByteSet = std::bitset<256>;

// Immutable, any thread. Every state is co-reachable: a text that was read is a prefix of one that matches.
class Grammar {
 public:
  struct Call {
    StateId start = 0;  // of the rule
    StateId then = 0;
    bool last = false;  // `then` is the end of the caller and nothing else
  };

  StateId start() const { return start_; }
  size_t states() const { return accepting_.size(); }
  StateId Next(StateId state, uint8_t byte) const {
    return next_[state * classes_.count() + classes_.of(byte)];
  }
  // The end of the rule that the state is in.
  bool Accepting(StateId state) const { return accepting_[state] != 0; }
  std::span<const Call> Calls(StateId state) const {
    return std::span(calls_).subspan(call_begin_[state], call_begin_[state + 1] - call_begin_[state]);
  }
  // No calls, and not the end of its rule.
  bool Plain(StateId state) const { return plain_[state] != 0; }
  // Whether the state is inside a list of distinct items, between them, or inside one of them.
  RuleKind KindOf(StateId state) const { return plain_kinds_ ? RuleKind::kText : kinds_[rule_of_[state]]; }
  bool is_plain() const { return plain_kinds_; }  // all rules are kText
  bool has_lists() const { return lists_; }       // of distinct items
  // Inside an item: how many texts the item can still become; the list must have fewer items with this
  // prefix, so that another can be written. Between items: how many the list may have at most, plus one, as
  // another must come; kManyTexts where none must.
  uint32_t RemainingTexts(StateId state) const { return remaining_texts_[state]; }
  // For a state in a counted rule, with `count` steps so far: whether the rule can still end within its
  // bounds; the count to which a mask of tokens of up to `steps` bytes belongs.
  bool MayContinue(StateId state, uint32_t count) const {
    return CounterOf(state).MayContinue(LocalOf(state), count);
  }
  uint32_t Representative(StateId state, uint32_t count, uint32_t steps) const {
    return CounterOf(state).Representative(count, steps);
  }
  bool IsStep(StateId state) const { return steps_[state]; }  // reading a byte that leads to it
  // Bytes that may come after the end of the rule that the state is in.
  const ByteSet& FollowOf(StateId state) const { return follow_[rule_of_[state]]; }

  size_t bytes() const;  // memory

 private:
  friend class GrammarCompiler;
  const StepCounter& CounterOf(StateId state) const { return *counters_[rule_of_[state]]; }
  StateId LocalOf(StateId state) const { return state - first_of_[rule_of_[state]]; }

  StateId start_ = 0;
  ByteClasses classes_;
  std::vector<StateId> next_;         // [states, classes]
  std::vector<uint8_t> accepting_;    // [states]
  std::vector<uint8_t> plain_;        // [states]
  std::vector<uint32_t> rule_of_;     // [states]
  std::vector<uint32_t> call_begin_;  // [states + 1]
  std::vector<Call> calls_;
  std::vector<ByteSet> follow_;  // [rules]
  std::vector<RuleKind> kinds_;  // [rules]
  bool plain_kinds_ = true;
  bool lists_ = false;
  std::vector<uint32_t> remaining_texts_;             // [states]; empty without lists
  std::vector<StateId> first_of_;                     // [rules]
  std::vector<std::optional<StepCounter>> counters_;  // [rules] of those that are counted
  std::vector<bool> steps_;                           // [states]; empty without counted rules
};

// kUnsupported when it is too large, when a rule begins with a call of itself, or when nothing matches.
api::Result<std::shared_ptr<const Grammar>> CompileGrammar(const ExprRef& whole,
                                                           const GrammarBuilder& builder);

}  // namespace quire::runner::constraint
