#include "runner/constraint/parse_states.h"

#include <algorithm>

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

StackId ReturnStacks::Push(StackId below, StateId then) {
  const uint64_t key = static_cast<uint64_t>(below) << 32U | then;
  const auto [found, added] = ids_.try_emplace(key, static_cast<StackId>(frames_.size()));
  if (added) frames_.push_back({then, below});
  return found->second;
}

void ReturnStacks::Clear() {
  frames_.resize(1);
  ids_.clear();
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
      AddNew(parse_states, {call.start, arena.stacks.Push(at.stack, call.then), at.items});
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
