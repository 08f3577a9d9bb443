// Matches one answer against a grammar.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "runner/constraint/mask_table.h"

namespace quire::runner::constraint {

// A compiled grammar with the masks of one vocabulary. Immutable but for the masks: those belong to the
// thread of the matchers (the engine's).
class Constraint {
 public:
  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyIndex> vocabulary,
             std::shared_ptr<MaskMemory> masks = nullptr)
      : grammar_(std::move(grammar)),
        vocabulary_(std::move(vocabulary)),
        masks_(*grammar_, *vocabulary_, std::move(masks)) {}

  const Grammar& grammar() const { return *grammar_; }
  const VocabularyIndex& vocabulary() const { return *vocabulary_; }

 private:
  friend class Matcher;
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const VocabularyIndex> vocabulary_;
  MaskTable masks_;
};

// How far a matcher's mask has come.
struct MaskInProgress {
  size_t state = 0;                           // of the parse states, in hand
  ParseArena::Mark begin = {};                // of the arena, before the mask
  ParseArena::Mark kept = {};                 // and with what stays between two pieces: `items`
  std::optional<ListItems> items = {};        // of the parse state, with the last one inserted
  std::optional<PartialMask> partial = {};    // of its own mask
  std::shared_ptr<const StateMask> own = {};  // is in the mask
  size_t open = 0;                            // of `own`, in hand
  std::optional<uint64_t> after_steps = {};   // behind the rule's end, once they are charged
  WalkPosition at = {};                       // below `open`
};

// One thread for all matchers of a constraint.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  // The tokens that may come next: exactly those whose bytes keep the text the beginning of one that matches,
  // and the end-of-generation tokens when it matches as it is. A token within which there are more ways to
  // read the text than are followed may be missing. Valid until the next call of anything.
  const TokenMask& Mask();
  // Makes a piece of the mask, in about `slice` steps at most, which it lowers by those that it took. True:
  // Mask() is there. Where pieces end changes no mask.
  bool PrepareMask(uint64_t& slice);
  // Steps that the next piece repeats first: one of no more does nothing.
  uint64_t repeated_steps() const {
    if (!making_) return 0;
    return making_->at.repeats + (making_->partial ? making_->partial->at.repeats : 0);
  }
  bool has_mask() const { return mask_valid_; }
  // The forced token: the only one of Mask().
  std::optional<api::TokenId> SingleAllowedToken();

  // Goes on by a token; false, and nothing changes, when Mask() does not have it.
  bool Accept(api::TokenId token);

  // Goes on by a token that an earlier matcher of the answer accepted behind its Mask(), as Accept() does.
  // That mask is not made again; the states that it was charged for are known.
  bool Replay(api::TokenId token);
  // What masks may still take, before the one of this position: its place in the answer and the masks of all
  // before decide.
  uint64_t mask_steps() const { return steps_here_; }
  // After Replay(): `steps` is mask_steps() of that matcher here.
  void RestoreMaskSteps(uint64_t steps);

  // The grammar is so ambiguous that its masks take more work than an answer may: no token is allowed from
  // here on.
  bool IsTooExpensive() {
    Mask();
    return allowance_.spent() || too_large_;
  }
  // The same for the memory of its parse states.
  bool IsTooLarge() const { return too_large_; }
  // The text can be read in more ways than are followed: some continuations are missing, and Accept() may
  // have refused a token of Mask(), which is made for each parse state alone.
  bool IsCutOff() const { return cut_off_; }
  // The text matches, and no token is allowed: the vocabulary has no end-of-generation token.
  bool IsComplete() { return may_end_ && Empty() && !IsTooExpensive() && !cut_off_; }
  // No token is allowed, though the text does not match: the vocabulary cannot produce the required text.
  bool IsDeadEnd() { return !may_end_ && Empty(); }

  // Memory of the parse states.
  size_t bytes() const { return arena_.stacks.bytes() + arena_.sets.bytes(); }

 private:
  // The functions below are false where `slice` is used up before they are finished.
  bool FillMask(uint64_t& slice);
  bool AddTokensAt(const ParseState& at, uint64_t& slice);
  bool AddTokensOf(const ParseState& at, uint64_t& slice);
  bool AddTokensInItem(const ParseState& at, uint64_t& slice);
  // The state's own mask, once it is made: false before, and where the allowance is spent.
  bool FindOwn(const ParseState& at, uint64_t& slice);
  void AddOwn(TokenMask& out) const;
  // The parse states behind the end of a rule, which are charged once.
  bool CloseAfter(const ParseState& end, uint64_t& slice);
  // Adds the tokens that they read behind the node in hand.
  bool AddOpen(const TokenTrie& trie, uint64_t& slice);
  const ListItems& ItemsOf(const ParseState& at);
  bool Empty();
  void BoundArena();

  std::shared_ptr<Constraint> constraint_;
  ParseArena arena_;          // between two calls, what the tokens so far have pushed; nothing of masks
  size_t stacks_checked_at_;  // the size at which those that nobody uses are looked for next
  bool too_large_ = false;
  bool cut_off_ = false;
  ParseStates parse_states_;
  std::array<ParseStates, 2> scratch_;
  bool may_end_ = false;
  bool ended_ = false;  // by an end-of-generation token
  MaskAllowance allowance_;
  uint64_t steps_here_;  // left of the allowance before Mask()
  TokenMask mask_;
  TokenMask item_mask_;  // of one parse state inside an item; only where there are lists
  bool mask_valid_ = false;
  std::optional<MaskInProgress> making_;
};

}  // namespace quire::runner::constraint
