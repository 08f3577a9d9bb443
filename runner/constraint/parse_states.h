// The parse states of a text in a grammar: several at once where the grammar is ambiguous, each with its call
// stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runner/constraint/grammar.h"
#include "runner/constraint/item_sets.h"

namespace quire::runner::constraint {

using StackId = uint32_t;
inline constexpr StackId kEmptyStack = 0;

// Stacks of return states, shared: equal stacks have equal ids. The ids below a stack are less than its own.
class ReturnStacks {
 public:
  ReturnStacks() : frames_(1), slots_(kSlotsMin) {}
  // `count`: of the rule that is returned to.
  StackId Push(StackId below, StateId then, uint32_t count = 0);
  StateId Top(StackId stack) const { return frames_[stack].then; }
  uint32_t CountAt(StackId stack) const { return frames_[stack].count; }
  StackId Below(StackId stack) const { return frames_[stack].below; }
  size_t size() const { return frames_.size(); }  // the empty stack included
  size_t bytes() const { return frames_.capacity() * sizeof(Frame) + slots_.capacity() * sizeof(StackId); }
  // Forgets the stacks from id `size` on. REQUIRES: nobody uses them.
  void Rewind(size_t size);

 private:
  static constexpr size_t kSlotsMin = 64;
  struct Frame {
    StateId then = kDead;
    StackId below = kEmptyStack;
    uint32_t count = 0;
    bool operator==(const Frame&) const = default;
  };
  // The slot that has the frame, else the empty one that it belongs into.
  size_t SlotOf(const Frame& frame) const;
  void Grow();

  std::vector<Frame> frames_;
  // Ids by the hash of their frame, linear probing; kEmptyStack: free. Ids leave in the reverse order in
  // which they came, so that a slot is freed by clearing it.
  std::vector<StackId> slots_;
};

struct ParseState {
  StateId state = kDead;
  StackId stack = kEmptyStack;
  ListItems items = {};
  uint32_t count = 0;  // of the steps of a counted rule
};

// Sets of parse states, closed under epsilon transitions. No two have the same state and stack: those of one
// text would have the same items and counts too, as brackets and commas delimit items, and quotes characters.
// More than kParseStatesMax are not followed: an answer that ambiguous fails (Matcher::IsCutOff).
inline constexpr size_t kParseStatesMax = 1024;
using ParseStates = std::vector<ParseState>;

// Which states and stacks a large set has. Knows one set at a time.
class ParseStateIndex {
 public:
  void Reset() { indexed_ = 0; }
  bool Has(const ParseStates& set, const ParseState& wanted);

 private:
  static constexpr size_t kSlots = 4 * kParseStatesMax;
  // The slot that has the state and stack, else the empty one that they belong into.
  size_t SlotOf(const ParseStates& set, const ParseState& wanted) const;

  size_t indexed_ = 0;           // of the set, from its beginning
  std::vector<uint16_t> slots_;  // positions in the set plus 1, linear probing; 0: free
};

// Storage that parse states refer to. One thread.
struct ParseArena {
  struct Mark {
    size_t stacks = 1;
    ItemSets::Mark sets;
  };
  Mark mark() const { return {stacks.size(), sets.mark()}; }
  // Forgets what came after the mark. REQUIRES: nobody uses it.
  void Rewind(const Mark& mark) {
    stacks.Rewind(mark.stacks);
    sets.Rewind(mark.sets);
  }

  ReturnStacks stacks;
  ItemSets sets;
  ParseStateIndex index;  // of the set that is being made
  uint64_t looked_at =
      0;  // parse states and calls, by Read() and Close(): who charges for them takes the difference
};

// Epsilon closure. True when the end with an empty stack is reached: the text may end here.
bool Close(const Grammar& grammar, ParseArena& arena, ParseStates& parse_states);
// Advances `from` by a byte; closed. Result as of Close().
bool Read(const Grammar& grammar, ParseArena& arena, const ParseStates& from, uint8_t byte, ParseStates& to);
// Forgets the stacks that none of `used` has, which get the new ids of theirs.
void DropUnusedStacks(ReturnStacks& stacks, ParseStates& used);
// The parse state behind the end of the current rule. REQUIRES: its stack is not empty.
ParseState Return(const Grammar& grammar, const ParseArena& arena, const ParseState& at);

}  // namespace quire::runner::constraint
