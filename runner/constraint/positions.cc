#include "runner/constraint/positions.h"

#include <algorithm>

namespace quire::runner::constraint {
namespace {

void AddNew(Positions& positions, Position position) {
  if (positions.size() >= kPositionsMax) return;
  if (std::ranges::find(positions, position) == positions.end()) positions.push_back(position);
}

}  // namespace

StackId StackPool::Push(StackId below, StateId then) {
  const uint64_t key = static_cast<uint64_t>(below) << 32U | then;
  const auto [found, added] = ids_.try_emplace(key, static_cast<StackId>(frames_.size()));
  if (added) frames_.push_back({then, below});
  return found->second;
}

void StackPool::Clear() {
  frames_.resize(1);
  ids_.clear();
}

bool Close(const Grammar& grammar, StackPool& stacks, Positions& positions) {
  bool ends = false;
  for (size_t i = 0; i < positions.size(); ++i) {
    const Position at = positions[i];
    if (grammar.Plain(at.state)) continue;
    for (const Grammar::Call& call : grammar.Calls(at.state)) {
      AddNew(positions, {call.start, stacks.Push(at.stack, call.then)});
    }
    if (!grammar.Accepting(at.state)) continue;
    if (at.stack == kEmptyStack) {
      ends = true;
    } else {
      AddNew(positions, {stacks.Top(at.stack), stacks.Below(at.stack)});
    }
  }
  return ends;
}

bool Read(const Grammar& grammar, StackPool& stacks, const Positions& from, uint8_t byte, Positions& to) {
  to.clear();
  for (const Position& at : from) {
    const StateId next = grammar.Next(at.state, byte);
    if (next != kDead) AddNew(to, {next, at.stack});
  }
  return Close(grammar, stacks, to);
}

}  // namespace quire::runner::constraint
