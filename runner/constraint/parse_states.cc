#include "runner/constraint/parse_states.h"

#include <algorithm>
#include <utility>

namespace quire::runner::constraint {
namespace {

void AddNew(ParseStates& parse_states, ParseState parse_state) {
  if (parse_states.size() >= kParseStatesMax) return;
  const bool known = std::ranges::any_of(parse_states, [&parse_state](const ParseState& other) {
    return other.state == parse_state.state && other.stack == parse_state.stack;
  });
  if (!known) parse_states.push_back(parse_state);
}

// Adds the byte to the items of the parse state; false when no continuation of the list could have distinct
// items.
bool Remember(const Grammar& grammar, ItemSets& sets, uint8_t byte, ParseState& parse_state) {
  switch (grammar.KindOf(parse_state.state)) {
    case RuleKind::kText:
      return true;
    case RuleKind::kDistinctList:
      return sets.Count(parse_state.items) < grammar.RemainingTexts(parse_state.state);
    case RuleKind::kDistinctItem:
      parse_state.items = sets.Write(parse_state.items, byte);
      return sets.CountWithPrefix(parse_state.items) < grammar.RemainingTexts(parse_state.state);
  }
  return true;
}

}  // namespace

size_t ReturnStacks::SlotOf(const Frame& frame) const {
  // The finalizer of MurmurHash3.
  uint64_t hash = static_cast<uint64_t>(frame.below) << 32U | frame.then;
  hash = (hash ^ hash >> 33U) * 0xFF51AFD7ED558CCDU;
  hash = (hash ^ hash >> 33U) * 0xC4CEB9FE1A85EC53U;
  size_t slot = (hash ^ hash >> 33U) & (slots_.size() - 1);
  while (slots_[slot] != kEmptyStack) {
    const Frame& other = frames_[slots_[slot]];
    if (other.then == frame.then && other.below == frame.below) break;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

StackId ReturnStacks::Push(StackId below, StateId then) {
  const Frame frame{then, below};
  if (const StackId known = slots_[SlotOf(frame)]; known != kEmptyStack) return known;
  if (4 * frames_.size() >= 3 * slots_.size()) Grow();
  const auto id = static_cast<StackId>(frames_.size());
  frames_.push_back(frame);
  slots_[SlotOf(frame)] = id;
  return id;
}

void ReturnStacks::Grow() {
  std::vector<StackId> larger(2 * slots_.size());
  slots_.swap(larger);
  for (StackId id = 1; id < frames_.size(); ++id) slots_[SlotOf(frames_[id])] = id;
}

void ReturnStacks::Rewind(size_t size) {
  for (; frames_.size() > size; frames_.pop_back()) slots_[SlotOf(frames_.back())] = kEmptyStack;
}

void DropUnusedStacks(ReturnStacks& stacks, ParseStates& used) {
  std::vector<StackId> renamed(stacks.size());  // first: not 0 where used
  for (const ParseState& at : used) {
    for (StackId id = at.stack; id != kEmptyStack && renamed[id] == 0; id = stacks.Below(id)) renamed[id] = 1;
  }
  ReturnStacks left;
  for (StackId id = 1; id < renamed.size(); ++id) {
    if (renamed[id] != 0) renamed[id] = left.Push(renamed[stacks.Below(id)], stacks.Top(id));
  }
  for (ParseState& at : used) at.stack = renamed[at.stack];
  stacks = std::move(left);
}

ParseState Return(const Grammar& grammar, const ParseArena& arena, const ParseState& at) {
  ParseState back{arena.stacks.Top(at.stack), arena.stacks.Below(at.stack)};
  if (grammar.KindOf(at.state) == RuleKind::kDistinctItem) back.items = ItemSets::End(at.items);
  return back;
}

bool Close(const Grammar& grammar, ParseArena& arena, ParseStates& parse_states) {
  bool ends = false;
  for (size_t i = 0; i < parse_states.size(); ++i) {
    const ParseState at = parse_states[i];
    if (grammar.Plain(at.state)) continue;
    for (const Grammar::Call& call : grammar.Calls(at.state)) {
      if (parse_states.size() >= kParseStatesMax) break;  // no stack that nobody uses
      const StackId stack = call.last ? at.stack : arena.stacks.Push(at.stack, call.then);
      AddNew(parse_states, {call.start, stack, at.items});
    }
    if (!grammar.Accepting(at.state)) continue;
    if (grammar.KindOf(at.state) == RuleKind::kDistinctItem && arena.sets.Has(at.items)) continue;
    if (at.stack == kEmptyStack) {
      ends = true;
    } else {
      AddNew(parse_states, Return(grammar, arena, at));
    }
  }
  return ends;
}

bool Read(const Grammar& grammar, ParseArena& arena, const ParseStates& from, uint8_t byte, ParseStates& to) {
  to.clear();
  for (const ParseState& at : from) {
    const StateId next = grammar.Next(at.state, byte);
    if (next == kDead) continue;
    ParseState read{next, at.stack, at.items};
    if (!grammar.has_lists() || Remember(grammar, arena.sets, byte, read)) AddNew(to, read);
  }
  return Close(grammar, arena, to);
}

}  // namespace quire::runner::constraint
