// Regular grammar expressions as automata over bytes.
// Sizes are bounded: too many states are an error, never a long wait.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

using StateId = uint32_t;
inline constexpr StateId kDead = UINT32_MAX;

inline constexpr size_t kNfaStatesMax = size_t{1} << 19;
inline constexpr size_t kDfaStatesMax = size_t{1} << 16;
inline constexpr size_t kDfaEntriesMax = size_t{1} << 24;  // states times classes

// Bytes that no automaton of a grammar tells apart share a class. Classes are runs of bytes, in their order.
class ByteClasses {
 public:
  ByteClasses() { borders_.set(0); }
  void Separate(ByteRange range);  // its bytes from all others
  void Finish();                   // before of() and count()

  uint8_t of(uint8_t byte) const { return of_[byte]; }
  const std::array<uint8_t, 256>& table() const { return of_; }
  size_t count() const { return count_; }

 private:
  std::bitset<257> borders_;  // a class begins here
  std::array<uint8_t, 256> of_{};
  size_t count_ = 0;
};

struct RuleCall {
  uint32_t rule = 0;
  StateId then = 0;  // where it goes on after the rule
};

struct Nfa {
  struct Edge {
    uint32_t to = 0;
    ByteRange bytes;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> epsilon;  // epsilon transitions
    std::vector<RuleCall> calls;
  };
  std::vector<State> states;  // from state 0 to state 1
};

// State 0 is the start.
struct Dfa {
  std::vector<StateId> next;  // [states, classes]
  std::vector<uint8_t> accepting;
  std::vector<std::vector<RuleCall>> calls;  // [states] alternatives to reading a byte
  ByteClasses classes;

  size_t states() const { return accepting.size(); }
  StateId Next(StateId state, uint8_t byte) const { return next[state * classes.count() + classes.of(byte)]; }
};

// kUnsupported when it is too large.
api::Result<Nfa> BuildNfa(const Expr& expr);
void Separate(const Nfa& nfa, ByteClasses& classes);
api::Result<Dfa> Determinize(const Nfa& nfa, const ByteClasses& classes);

// For expressions without calls.
api::Result<Dfa> BuildDfa(const Expr& expr);
// The intersection of both; the texts that `a` matches and `b` does not.
api::Result<Dfa> Intersect(const Dfa& a, const Dfa& b);
api::Result<Dfa> Subtract(const Dfa& a, const Dfa& b);
bool Matches(const Dfa& dfa, std::string_view text);
// How many texts each state can go on with until it matches; kManyTexts for more than that, or without end.
// Calls are not followed.
inline constexpr uint32_t kManyTexts = UINT32_MAX;
std::vector<uint32_t> CountTexts(const Dfa& dfa);

}  // namespace quire::runner::constraint
