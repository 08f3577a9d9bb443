#include "runner/constraint/empty_texts.h"

#include <algorithm>
#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

class EmptyRules {
 public:
  EmptyRules(std::span<const Nfa> rules, const std::function<bool(uint32_t)>& exempt)
      : rules_(rules), empty_(rules.size()), exempt_(rules.size()), callers_(rules.size()) {
    for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
      exempt_[rule] = exempt(rule);
      todo_.push_back(rule);
    }
  }

  // A rule that is found to be empty sends those back that came to a call of it.
  std::vector<bool> Find() {
    while (!todo_.empty()) {
      const uint32_t rule = todo_.back();
      todo_.pop_back();
      if (empty_[rule] || exempt_[rule] || !MatchesEmpty(rule)) continue;
      empty_[rule] = true;
      todo_.insert(todo_.end(), callers_[rule].begin(), callers_[rule].end());
      callers_[rule].clear();
    }
    return std::move(empty_);
  }

 private:
  bool MatchesEmpty(uint32_t rule) {
    const Nfa& nfa = rules_[rule];
    CountWork(1 + nfa.states.size() / 16);
    std::vector<bool> seen(nfa.states.size());
    std::vector<uint32_t> reached;
    const auto reach = [&](uint32_t state) {
      if (!seen[state]) reached.push_back(state);
      seen[state] = true;
    };
    reach(0);
    for (size_t i = 0; i < reached.size(); ++i) {
      const Nfa::State& at = nfa.states[reached[i]];
      if (reached[i] == 1) return true;
      CountWork(1 + at.epsilon.size() + at.calls.size());
      std::ranges::for_each(at.epsilon, reach);
      for (const RuleCall& call : at.calls) {
        if (empty_[call.rule]) {
          reach(call.then);
        } else {
          callers_[call.rule].push_back(rule);
        }
      }
    }
    return false;
  }

  std::span<const Nfa> rules_;
  std::vector<bool> empty_;
  std::vector<bool> exempt_;
  std::vector<std::vector<uint32_t>> callers_;  // [rules] those that came to a call of it in vain
  std::vector<uint32_t> todo_;
};

}  // namespace

std::vector<bool> FindEmptyRules(std::span<const Nfa> rules, const std::function<bool(uint32_t)>& exempt) {
  return EmptyRules(rules, exempt).Find();
}

void MakeEmptyCallsOptional(const std::vector<bool>& empty, std::span<Nfa> rules) {
  for (Nfa& nfa : rules) {
    for (Nfa::State& state : nfa.states) {
      CountWork(1 + state.calls.size());
      for (const RuleCall& call : state.calls) {
        if (empty[call.rule]) state.epsilon.push_back(call.then);
      }
    }
  }
}

// What leads back to the start, where a text that is not empty may end, leads to a copy of it.
void RemoveEmptyText(Dfa& dfa) {
  if (dfa.accepting[0] == 0) return;
  const auto copy = static_cast<StateId>(dfa.states());
  const size_t classes = dfa.classes.count();
  CountWork(dfa.next.size() + classes);
  dfa.next.reserve(dfa.next.size() + classes);
  for (size_t c = 0; c < classes; ++c) dfa.next.push_back(dfa.next[c]);
  dfa.calls.push_back(dfa.calls[0]);
  dfa.accepting.push_back(1);
  dfa.accepting[0] = 0;
  std::ranges::replace(dfa.next, StateId{0}, copy);
  for (auto& calls : dfa.calls) {
    CountWork(calls.size());
    for (RuleCall& call : calls) {
      if (call.then == 0) call.then = copy;
    }
  }
}

}  // namespace quire::runner::constraint
