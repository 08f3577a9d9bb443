#include "runner/constraint/positions.h"

#include <algorithm>

namespace quire::runner::constraint {
namespace {

void AddNew(Positions& positions, Position position) {
  if (positions.size() >= kPositionsMax) return;
  const bool known = std::ranges::any_of(positions, [&position](const Position& other) {
    return other.state == position.state && other.stack == position.stack;
  });
  if (!known) positions.push_back(position);
}

// Takes the byte that led to the position's state into its items; false when no list that goes on like this
// could end with all of them different.
bool Remember(const Grammar& grammar, ItemSets& sets, uint8_t byte, Position& position) {
  switch (grammar.KindOf(position.state)) {
    case RuleKind::kText:
      return true;
    case RuleKind::kDistinctList:
      return sets.Count(position.items) < grammar.Room(position.state);
    case RuleKind::kDistinctItem:
      position.items = sets.Write(position.items, byte);
      return sets.CountAlike(position.items) < grammar.Room(position.state);
  }
  return true;
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

Position Return(const Grammar& grammar, const Memory& memory, const Position& at) {
  Position back{memory.stacks.Top(at.stack), memory.stacks.Below(at.stack)};
  if (grammar.KindOf(at.state) == RuleKind::kDistinctItem) back.items = ItemSets::End(at.items);
  return back;
}

bool Close(const Grammar& grammar, Memory& memory, Positions& positions) {
  bool ends = false;
  for (size_t i = 0; i < positions.size(); ++i) {
    const Position at = positions[i];
    if (grammar.Plain(at.state)) continue;
    for (const Grammar::Call& call : grammar.Calls(at.state)) {
      AddNew(positions, {call.start, memory.stacks.Push(at.stack, call.then), at.items});
    }
    if (!grammar.Accepting(at.state)) continue;
    if (grammar.KindOf(at.state) == RuleKind::kDistinctItem && memory.sets.Has(at.items)) continue;
    if (at.stack == kEmptyStack) {
      ends = true;
    } else {
      AddNew(positions, Return(grammar, memory, at));
    }
  }
  return ends;
}

bool Read(const Grammar& grammar, Memory& memory, const Positions& from, uint8_t byte, Positions& to) {
  to.clear();
  for (const Position& at : from) {
    const StateId next = grammar.Next(at.state, byte);
    if (next == kDead) continue;
    Position read{next, at.stack, at.items};
    if (!grammar.has_lists() || Remember(grammar, memory.sets, byte, read)) AddNew(to, read);
  }
  return Close(grammar, memory, to);
}

}  // namespace quire::runner::constraint
