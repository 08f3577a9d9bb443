// The parse states of a text in a grammar: several at once where the grammar is ambiguous, each with its call
// stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runner/constraint/grammar.h"
#include "runner/constraint/item_sets.h"

namespace quire::runner::constraint {

using StackId = uint32_t;
inline constexpr StackId kEmptyStack = 0;

// Stacks of return states, shared: equal stacks have equal ids.
class ReturnStacks {
 public:
  ReturnStacks() : frames_(1) {}
  StackId Push(StackId below, StateId then);
  StateId Top(StackId stack) const { return frames_[stack].then; }
  StackId Below(StackId stack) const { return frames_[stack].below; }
  size_t size() const { return frames_.size(); }
  void Clear();

 private:
  struct Frame {
    StateId then = kDead;
    StackId below = kEmptyStack;
  };
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, StackId> ids_;
};

// Storage that parse states refer to. One thread; parse states of several answers may share it.
struct ParseArena {
  ReturnStacks stacks;
  ItemSets sets;
};

struct ParseState {
  StateId state = kDead;
  StackId stack = kEmptyStack;
  ListItems items = {};
};

// Sets of parse states, closed under epsilon transitions. No two have the same state and stack: those of one
// text would have the same items too, as brackets and commas delimit items. More than kParseStatesMax are not
// followed: for an answer that ambiguous some continuations are not offered.
inline constexpr size_t kParseStatesMax = 256;
using ParseStates = std::vector<ParseState>;

// Epsilon closure. True when the end with an empty stack is reached: the text may end here.
bool Close(const Grammar& grammar, ParseArena& arena, ParseStates& parse_states);
// Advances `from` by a byte; closed. Result as of Close().
bool Read(const Grammar& grammar, ParseArena& arena, const ParseStates& from, uint8_t byte, ParseStates& to);
// The parse state behind the end of the current rule. REQUIRES: its stack is not empty.
ParseState Return(const Grammar& grammar, const ParseArena& arena, const ParseState& at);

}  // namespace quire::runner::constraint
