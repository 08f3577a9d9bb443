// Where a text stands in a grammar: several places at once where the grammar is ambiguous, each with the
// calls that it is inside of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runner/constraint/grammar.h"

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

struct Position {
  StateId state = kDead;
  StackId stack = kEmptyStack;
  bool operator==(const Position&) const = default;
};

// Closed sets of positions: with every position that is reached without reading. More than kPositionsMax are
// not followed: of an answer that ambiguous some continuations are not offered.
inline constexpr size_t kPositionsMax = 256;
using Positions = std::vector<Position>;

// Adds what is reached without reading. True when the empty stack's end is: the text may end here.
bool Close(const Grammar& grammar, StackPool& stacks, Positions& positions);
// What `from` becomes by reading a byte; closed. Result as of Close().
bool Read(const Grammar& grammar, StackPool& stacks, const Positions& from, uint8_t byte, Positions& to);

}  // namespace quire::runner::constraint
