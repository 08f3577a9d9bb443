#include "runner/constraint/empty_texts.h"

#include <algorithm>
#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

class EmptyRules {
 public:
  EmptyRules(std::span<const Nfa> rules, const std::function<bool(uint32_t)>& exempt)
      : rules_(rules), empty_(rules.size()), seen_(rules.size()), callers_(rules.size()) {
    for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
      if (exempt(rule)) continue;
      CountWork(1 + rules_[rule].states.size() / 64);
      seen_[rule].resize(rules_[rule].states.size());
      Reach({rule, 0});
    }
  }

  // Each state is looked at once. A call waits until its rule is known to be empty, and is then passed by.
  std::vector<bool> Find() {
    while (!todo_.empty()) {
      const Place at = todo_.back();
      todo_.pop_back();
      if (at.state == 1) {
        MarkEmpty(at.rule);
        continue;
      }
      const Nfa::State& state = rules_[at.rule].states[at.state];
      CountWork(1 + state.epsilon.size() + state.calls.size());
      for (const uint32_t next : state.epsilon) Reach({at.rule, next});
      for (const RuleCall& call : state.calls) {
        const Place then{at.rule, call.then};
        if (empty_[call.rule]) {
          Reach(then);
        } else {
          callers_[call.rule].push_back(then);
        }
      }
    }
    return std::move(empty_);
  }

 private:
  // A state that is reached from its rule's start without a byte.
  struct Place {
    uint32_t rule = 0;
    uint32_t state = 0;
  };

  void Reach(Place place) {
    if (seen_[place.rule][place.state]) return;
    seen_[place.rule][place.state] = true;
    todo_.push_back(place);
  }

  void MarkEmpty(uint32_t rule) {
    empty_[rule] = true;
    for (const Place& then : std::exchange(callers_[rule], {})) Reach(then);
  }

  std::span<const Nfa> rules_;
  std::vector<bool> empty_;
  std::vector<std::vector<bool>> seen_;
  std::vector<std::vector<Place>> callers_;  // [rules] where calls go on that wait for it
  std::vector<Place> todo_;
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
