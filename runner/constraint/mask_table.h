// For each state of a grammar, the allowed next tokens, as far as the state (in counted rules with its count)
// alone decides.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runner/constraint/grammar.h"
#include "runner/constraint/mask_memory.h"
#include "runner/constraint/parse_states.h"
#include "runner/constraint/token_trie.h"

namespace quire::runner::constraint {

// The state of a rule, in counted rules with the number of steps so far, or another that stands for it.
struct MaskPlace {
  StateId state = 0;
  uint32_t count = 0;
  bool operator==(const MaskPlace&) const = default;
};
struct MaskPlaceHash {
  size_t operator()(const MaskPlace& place) const {
    return std::hash<uint64_t>{}(uint64_t{place.count} << 32U | place.state);
  }
};

// What the masks of one answer may still cost, in steps through the vocabulary's tries. A client chooses its
// grammar, and where that is ambiguous a step costs thousands of others; masks are made on the engine's
// thread. What is charged does not depend on what is cached: a mask costs an answer the same whether it or
// another one made it.
class MaskAllowance {
 public:
  explicit MaskAllowance(const VocabularyIndex& vocabulary);

  // False, now and from now on: it is spent.
  bool Charge(uint64_t steps);
  // As Charge(), once for a place.
  bool ChargeOnce(const MaskPlace& place, uint64_t steps);
  // What another matcher of the same answer has charged.
  void MarkCharged(const MaskPlace& place) { charged_.insert(place); }
  void Restore(uint64_t left);
  // What making the place's mask may take.
  uint64_t LimitOf(const MaskPlace& place) const;
  void AddToken();
  uint64_t left() const { return left_; }  // steps; 0 behind a token: it is spent
  bool spent() const { return spent_; }

 private:
  uint64_t Max() const;

  uint64_t walk_;  // steps of one walk through the whole vocabulary
  uint64_t left_;
  bool spent_ = false;
  std::unordered_set<MaskPlace, MaskPlaceHash> charged_;
};

// Tokens that begin with a byte that the state itself reads. Those that go on after the end of the state's
// rule are left open: they depend on who called.
struct StateMask {
  size_t plain = 0;                        // plain tokens of up to this many characters
  std::vector<api::TokenId> tokens;        // where they are few
  std::shared_ptr<const TokenMask> dense;  // where they are many
  bool of_other = false;                   // `open` are nodes of the trie of tokens that are not plain
  std::vector<uint32_t> open;              // trie nodes that end the rule; what is below them is open
  uint64_t steps = 0;                      // that it took
};

// Where a walk through a trie goes on.
struct WalkPosition {
  uint32_t node = 0;     // the next to read
  uint64_t repeats = 0;  // steps that reading the bytes before it again takes
};

// A state's mask in the making.
struct PartialMask {
  StateMask mask;
  TokenMask accepted;
  WalkPosition at;
};

// Fills itself as states are asked for. One thread, but for bytes().
//
// Masks are made piece by piece: a function that gets `slice` takes about as many steps at most, lowers it by
// those that it took and says whether it has finished. Called again with the same arguments it goes on, and
// repeats some steps first: those count for the slice, not for the allowance, and a slice that has no more
// does nothing. Where pieces end changes nothing else.
class MaskTable {
 public:
  // `memory`: of all tables that share it; null: this one has a limit of its own only.
  MaskTable(const Grammar& grammar, const VocabularyIndex& vocabulary,
            std::shared_ptr<MaskMemory> memory = nullptr);
  ~MaskTable();
  MaskTable(const MaskTable&) = delete;
  MaskTable& operator=(const MaskTable&) = delete;

  // For states inside an item of a list of distinct ones: as if there were no items before. Not for states
  // between such items: what may come depends on those. Null: not finished, or the allowance is spent.
  std::shared_ptr<const StateMask> Of(const MaskPlace& place, MaskAllowance& allowance,
                                      std::optional<PartialMask>& partial, uint64_t& slice);

  // The place whose mask a parse state has.
  MaskPlace PlaceOf(const ParseState& at) const;

  // The functions below finish where the allowance is spent. `at`: where to go on; the default at first.
  // The arena has at most the parse states of one path through the trie meanwhile, and none of them
  // afterwards. Adds the tokens of the subtree below `node` that `from` can read, from their byte behind it
  // on.
  bool AddBelow(const TokenTrie& trie, uint32_t node, const ParseStates& from, ParseArena& arena,
                MaskAllowance& allowance, TokenMask& out, WalkPosition& at, uint64_t& slice);
  // Adds the tokens that `from` can read.
  bool AddAll(const TokenTrie& trie, const ParseStates& from, ParseArena& arena, MaskAllowance& allowance,
              TokenMask& out, WalkPosition& at, uint64_t& slice);
  // Masks the tokens after which the item can only become one that the list already has. One piece: it reads
  // the trie once at most.
  void MaskUsedItems(const TokenTrie& trie, StateId state, const ListItems& items, const ItemSets& sets,
                     MaskAllowance& allowance, TokenMask& out, uint64_t& slice);

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Masks that somebody has at this moment stay with him.
  void Clear();

 private:
  static constexpr size_t kEndless = std::numeric_limits<size_t>::max();
  // A state of a walk: one grammar state without calls or end where `state` is not dead, else `parse_states`.
  struct Level {
    StateId state = kDead;
    uint32_t count = 0;
    ParseStates parse_states;
  };

  // A state's successor after any one plain character: see AfterPlain().
  struct PlainStep {
    std::optional<StateId> after;
    uint64_t steps = 0;
  };

  // False where it is not finished; never will be where its steps exceed `steps_max`.
  bool Build(const MaskPlace& place, uint64_t steps_max, std::optional<PartialMask>& partial,
             uint64_t& slice);
  // How many plain characters the place can read, if it can read any that many times and nothing else
  // matters; 0 when one number cannot express it. Adds its steps; any number where they exceed `steps_max`.
  size_t PlainRun(const MaskPlace& place, uint64_t& steps, uint64_t steps_max);
  size_t CountedPlainRun(const MaskPlace& place, uint64_t& steps);
  // The state after any one plain character; dead when none can be read, nothing when it depends on which.
  const PlainStep& AfterPlain(StateId state);
  PlainStep ComputeAfterPlain(StateId state) const;
  bool WalkFrom(const MaskPlace& place, const TokenTrie& trie, uint64_t steps_max, PartialMask& partial,
                uint64_t& slice);
  // Reads the bytes of a token up to `node`, without it.
  void RestoreLevels(const TokenTrie& trie, uint32_t node);
  // The steps that this takes, from behind the depth `top` on. REQUIRES: they were just read.
  uint64_t StepsToRestore(const TokenTrie& trie, uint32_t node, uint32_t top) const;
  std::shared_ptr<const StateMask> Insert(const MaskPlace& place, StateMask mask);
  bool Step(const Level& from, uint8_t byte, Level& to, bool& ends);
  // Steps of reading a byte that leads to these parse states.
  uint64_t StepsTo(const ParseStates& to, uint64_t looked_at);
  void ReleaseWalk();
  // Nodes [at, end), at the depths behind `top`.
  bool AddNodes(const TokenTrie& trie, uint32_t end, uint32_t top, const ParseStates& from, ParseArena& arena,
                MaskAllowance& allowance, TokenMask& out, WalkPosition& at, uint64_t& slice);
  uint64_t ReadLevel(uint32_t depth, uint32_t top, char byte, const ParseStates& from, ParseArena& arena);

  const Grammar& grammar_;
  const VocabularyIndex& vocabulary_;
  const std::shared_ptr<MaskMemory> memory_;
  std::unordered_map<MaskPlace, std::shared_ptr<const StateMask>, MaskPlaceHash> masks_;
  std::unordered_map<StateId, PlainStep> after_plain_;
  ParseArena arena_;                     // of the walk in hand: relative to the rule's caller
  bool within_item_ = false;             // no items are tracked
  bool has_large_levels_ = false;        // whose memory is not kept
  std::vector<Level> levels_;            // [depth]
  std::vector<ParseArena::Mark> marks_;  // [depth] of the arena with the level's parse states and those above
  std::vector<uint64_t> level_steps_;    // [depth] that reading its byte took
  std::vector<uint32_t> set_nodes_;      // [depth]
  std::atomic<size_t> bytes_ = 0;
};

}  // namespace quire::runner::constraint
