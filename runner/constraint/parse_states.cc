#include "runner/constraint/parse_states.h"

#include <algorithm>
#include <utility>

namespace quire::runner::constraint {
namespace {

// The finalizer of MurmurHash3.
uint64_t HashOf(uint32_t a, uint32_t b, uint32_t c = 0) {
  uint64_t hash = (static_cast<uint64_t>(a) << 32U | b) + c * 0x9E3779B97F4A7C15U;
  hash = (hash ^ hash >> 33U) * 0xFF51AFD7ED558CCDU;
  hash = (hash ^ hash >> 33U) * 0xC4CEB9FE1A85EC53U;
  return hash ^ hash >> 33U;
}

bool IsSame(const ParseState& one, const ParseState& other) {
  return one.state == other.state && one.stack == other.stack;
}

void AddNew(ParseStates& parse_states, ParseStateIndex& index, const ParseState& parse_state) {
  if (parse_states.size() < kParseStatesMax && !index.Has(parse_states, parse_state))
    parse_states.push_back(parse_state);
}

// Adds the byte to the items of the parse state, or to its count; false when no continuation of the list
// could have distinct items, or no continuation of the rule a count within its bounds.
bool Remember(const Grammar& grammar, ItemSets& sets, uint8_t byte, ParseState& parse_state) {
  switch (grammar.KindOf(parse_state.state)) {
    case RuleKind::kText:
      return true;
    case RuleKind::kDistinctList:
      return sets.Count(parse_state.items) < grammar.RemainingTexts(parse_state.state);
    case RuleKind::kDistinctItem:
      parse_state.items = sets.Write(parse_state.items, byte);
      return sets.CountWithPrefix(parse_state.items) < grammar.RemainingTexts(parse_state.state);
    case RuleKind::kCountedText:
    case RuleKind::kCountedList:
      parse_state.count += grammar.IsStep(parse_state.state) ? 1 : 0;
      return grammar.MayContinue(parse_state.state, parse_state.count);
  }
  return true;
}

}  // namespace

size_t ReturnStacks::SlotOf(const Frame& frame) const {
  size_t slot = HashOf(frame.below, frame.then, frame.count) & (slots_.size() - 1);
  while (slots_[slot] != kEmptyStack && frames_[slots_[slot]] != frame)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

size_t ParseStateIndex::SlotOf(const ParseStates& set, const ParseState& wanted) const {
  size_t slot = HashOf(wanted.state, wanted.stack) % kSlots;
  while (slots_[slot] != 0 && !IsSame(set[slots_[slot] - 1U], wanted)) slot = (slot + 1) % kSlots;
  return slot;
}

bool ParseStateIndex::Has(const ParseStates& set, const ParseState& wanted) {
  constexpr size_t kSmall = 32;
  if (set.size() < kSmall) {
    return std::ranges::any_of(set, [&wanted](const ParseState& other) { return IsSame(other, wanted); });
  }
  if (indexed_ == 0) slots_.assign(kSlots, 0);
  for (; indexed_ < set.size(); ++indexed_)
    slots_[SlotOf(set, set[indexed_])] = static_cast<uint16_t>(indexed_ + 1);
  return slots_[SlotOf(set, wanted)] != 0;
}

StackId ReturnStacks::Push(StackId below, StateId then, uint32_t count) {
  const Frame frame{then, below, count};
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
    if (renamed[id] != 0)
      renamed[id] = left.Push(renamed[stacks.Below(id)], stacks.Top(id), stacks.CountAt(id));
  }
  for (ParseState& at : used) at.stack = renamed[at.stack];
  stacks = std::move(left);
}

ParseState Return(const Grammar& grammar, const ParseArena& arena, const ParseState& at) {
  ParseState back{arena.stacks.Top(at.stack), arena.stacks.Below(at.stack)};
  if (grammar.KindOf(at.state) == RuleKind::kDistinctItem) back.items = ItemSets::End(at.items);
  back.count = arena.stacks.CountAt(at.stack);
  return back;
}

bool Close(const Grammar& grammar, ParseArena& arena, ParseStates& parse_states) {
  arena.index.Reset();
  bool ends = false;
  for (size_t i = 0; i < parse_states.size(); ++i) {
    const ParseState at = parse_states[i];
    if (grammar.Plain(at.state)) continue;
    const auto calls = grammar.Calls(at.state);
    arena.looked_at += calls.size();  // also of those that all lead to the same states
    const bool counts = grammar.KindOf(at.state) == RuleKind::kCountedList;
    for (const Grammar::Call& call : calls) {
      if (parse_states.size() >= kParseStatesMax) break;  // no stack that nobody uses
      if (counts && !grammar.MayContinue(call.then, at.count + 1)) continue;
      const StackId stack =
          call.last ? at.stack : arena.stacks.Push(at.stack, call.then, at.count + (counts ? 1 : 0));
      AddNew(parse_states, arena.index, {call.start, stack, at.items});
    }
    if (!grammar.Accepting(at.state)) continue;
    if (grammar.KindOf(at.state) == RuleKind::kDistinctItem && arena.sets.Has(at.items)) continue;
    if (at.stack == kEmptyStack) {
      ends = true;
    } else {
      AddNew(parse_states, arena.index, Return(grammar, arena, at));
    }
  }
  return ends;
}

bool Read(const Grammar& grammar, ParseArena& arena, const ParseStates& from, uint8_t byte, ParseStates& to) {
  to.clear();
  arena.index.Reset();
  arena.looked_at += from.size();
  for (const ParseState& at : from) {
    const StateId next = grammar.Next(at.state, byte);
    if (next == kDead) continue;
    ParseState read{next, at.stack, at.items, at.count};
    if (grammar.is_plain() || Remember(grammar, arena.sets, byte, read)) AddNew(to, arena.index, read);
  }
  return Close(grammar, arena, to);
}

}  // namespace quire::runner::constraint
