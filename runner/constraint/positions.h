// Where a text stands in a grammar: several places at once where the grammar is ambiguous, each with the
// calls that it is inside of.
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

// Stacks of states to go on with after a call, shared: equal stacks have equal ids.
class StackPool {
 public:
  StackPool() : frames_(1) {}
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

// What positions refer to. One thread; positions of several answers may share it.
struct Memory {
  StackPool stacks;
  ItemSets sets;
};

struct Position {
  StateId state = kDead;
  StackId stack = kEmptyStack;
  ListItems items = {};
};

// Closed sets of positions: with every position that is reached without reading. No two have the same state
// and stack: those of one text would have the same items too, as brackets and commas say where items are.
// More than kPositionsMax are not followed: of an answer that ambiguous some continuations are not offered.
inline constexpr size_t kPositionsMax = 256;
using Positions = std::vector<Position>;

// Adds what is reached without reading. True when the empty stack's end is: the text may end here.
bool Close(const Grammar& grammar, Memory& memory, Positions& positions);
// What `from` becomes by reading a byte; closed. Result as of Close().
bool Read(const Grammar& grammar, Memory& memory, const Positions& from, uint8_t byte, Positions& to);
// Where it goes on behind the end of the rule that the position is in. REQUIRES: its stack is not empty.
Position Return(const Grammar& grammar, const Memory& memory, const Position& at);

}  // namespace quire::runner::constraint
