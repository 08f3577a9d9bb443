#include "runner/constraint/step_counter.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "runner/constraint/code_points.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr size_t kLengthEntriesMax = size_t{1} << 20;
constexpr uint32_t kNoLength = UINT32_MAX;

// The transitions of an automaton backwards.
struct Reversed {
  std::vector<std::vector<StateId>> by_step;
  std::vector<std::vector<StateId>> within_step;
  size_t edges = 0;
};

Reversed ReverseOf(const Dfa& dfa, const StepCounter::Steps& steps) {
  Reversed reversed{.by_step = std::vector<std::vector<StateId>>(dfa.states()),
                    .within_step = std::vector<std::vector<StateId>>(dfa.states())};
  const size_t classes = dfa.classes.count();
  CountWork(dfa.next.size() + dfa.states());
  const auto add = [&](std::vector<std::vector<StateId>>& to, StateId target, StateId from) {
    if (!to[target].empty() && to[target].back() == from) return;
    to[target].push_back(from);
    ++reversed.edges;
  };
  for (StateId state = 0; state < dfa.states(); ++state) {
    for (size_t c = 0; c < classes; ++c) {
      const StateId next = dfa.next[state * classes + c];
      if (next != kDead) add(steps.byte(next) ? reversed.by_step : reversed.within_step, next, state);
    }
    for (const RuleCall& call : dfa.calls[state])
      add(steps.calls ? reversed.by_step : reversed.within_step, call.then, state);
  }
  return reversed;
}

// Adds the states that reach one of the set without a step.
void Close(const Reversed& reversed, std::vector<bool>& set) {
  std::vector<StateId> todo;
  for (StateId state = 0; state < set.size(); ++state) {
    if (set[state]) todo.push_back(state);
  }
  while (!todo.empty()) {
    const StateId state = todo.back();
    todo.pop_back();
    for (const StateId before : reversed.within_step[state]) {
      if (set[before]) continue;
      set[before] = true;
      todo.push_back(before);
    }
  }
}

}  // namespace

// sets[k]: the states from which a text can match with exactly k steps. Each follows from the one before.
api::Result<StepCounter> StepCounter::Make(const Dfa& dfa, const Steps& steps, Lengths bounds) {
  const Reversed reversed = ReverseOf(dfa, steps);
  const size_t states = dfa.states();
  std::vector<bool> set(states);
  for (StateId state = 0; state < states; ++state) set[state] = dfa.accepting[state] != 0;
  Close(reversed, set);
  std::map<std::vector<bool>, uint32_t> known;
  std::vector<const std::vector<bool>*> sets;
  while (true) {
    CountWork(states + reversed.edges);
    const auto [found, added] = known.try_emplace(set, static_cast<uint32_t>(sets.size()));
    if (!added) {
      StepCounter counter;
      counter.bounds_ = bounds;
      counter.preperiod_ = found->second;
      counter.period_ = static_cast<uint32_t>(sets.size()) - found->second;
      counter.next_.assign(states * sets.size(), kNoLength);
      for (StateId state = 0; state < states; ++state) {
        uint32_t next = kNoLength;
        // Twice, so that what comes first in the next period is known.
        for (size_t k = sets.size() + counter.period_; k-- > 0;) {
          const size_t at = k < sets.size() ? k : k - counter.period_;
          if ((*sets[at])[state]) next = static_cast<uint32_t>(k);
          if (k < sets.size()) counter.next_[state * sets.size() + k] = next;
        }
      }
      return counter;
    }
    sets.push_back(&found->first);
    if (states * sets.size() > kLengthEntriesMax) {
      return api::Fail(api::ErrorCode::kUnsupported,
                       "the format is too large: a pattern with bounds of its length has too many lengths");
    }
    std::vector<bool> next(states);
    for (StateId state = 0; state < states; ++state) {
      if (!set[state]) continue;
      for (const StateId before : reversed.by_step[state]) next[before] = true;
    }
    Close(reversed, next);
    set = std::move(next);
  }
}

uint64_t StepCounter::NextLength(StateId state, uint64_t least) const {
  const uint64_t lengths = uint64_t{preperiod_} + period_;
  const uint64_t moved = least < lengths ? 0 : (least - preperiod_) / period_ * period_;
  const uint32_t next = next_[state * lengths + (least - moved)];
  return next == kNoLength ? std::numeric_limits<uint64_t>::max() : next + moved;
}

bool StepCounter::MayContinue(StateId state, uint32_t count) const {
  if (bounds_.max && count > *bounds_.max) return false;
  const uint64_t next = NextLength(state, count < bounds_.min ? bounds_.min - count : 0);
  if (next == std::numeric_limits<uint64_t>::max()) return false;
  return !bounds_.max || next <= *bounds_.max - count;
}

uint32_t StepCounter::Representative(uint32_t count, uint32_t steps) const {
  const uint64_t far = uint64_t{preperiod_} + period_ + steps;
  if (count < bounds_.min) {
    // All that decides is the distance to the minimum, where it is large only its place in the period.
    const uint64_t lacks = bounds_.min - count;
    const uint64_t back = lacks <= far ? 0 : (period_ - (lacks - far) % period_) % period_;
    return lacks <= far ? count : static_cast<uint32_t>(bounds_.min - (far - back));
  }
  if (!bounds_.max) return bounds_.min;
  return *bounds_.max - count > far ? static_cast<uint32_t>(*bounds_.max - far) : count;
}

std::vector<bool> StatesBetweenCharacters(const Dfa& string) {
  static const auto characters = [] {
    const WorkBudget::Exempt once_per_process;
    return BuildDfa(*Sequence({Literal("\""), Repeat(AnyJsonCharacter(), 0, std::nullopt), Literal("\"")}));
  }();
  std::vector<bool> between(string.states());
  if (!characters) return between;
  const auto lies_between = [](StateId state) {
    const StateId next = characters->Next(state, '"');
    return next != kDead && characters->accepting[next] != 0;
  };
  // A state of the string's automaton always has the same place in a character.
  std::vector<StateId> place(string.states(), kDead);
  std::vector<StateId> todo = {0};
  place[0] = 0;
  while (!todo.empty()) {
    const StateId state = todo.back();
    todo.pop_back();
    between[state] = lies_between(place[state]);
    CountWork(0x100);
    for (int byte = 0; byte <= 0xFF; ++byte) {
      const StateId next = string.Next(state, static_cast<uint8_t>(byte));
      if (next == kDead || place[next] != kDead) continue;
      place[next] = characters->Next(place[state], static_cast<uint8_t>(byte));
      if (place[next] != kDead) todo.push_back(next);
    }
  }
  return between;
}

}  // namespace quire::runner::constraint
