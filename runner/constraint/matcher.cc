#include "runner/constraint/matcher.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace quire::runner::constraint {
namespace {

// Bounds an answer, with what nobody uses any more up to twice as many: some 16 MB. Every bracket that is
// open is one, or a few where it is not known which it is.
constexpr size_t kStacksMax = size_t{1} << 19;
constexpr size_t kStacksUnchecked = 4096;
// Bounds the texts of lists of distinct items: some 40 bytes for a byte of them.
constexpr size_t kSetBytesMax = size_t{64} << 20;

}  // namespace

Matcher::Matcher(std::shared_ptr<Constraint> constraint)
    : constraint_(std::move(constraint)),
      stacks_checked_at_(kStacksUnchecked),
      parse_states_{{constraint_->grammar().start(), kEmptyStack}},
      allowance_(constraint_->vocabulary()),
      steps_here_(allowance_.left()),
      mask_(constraint_->vocabulary().size()) {
  may_end_ = Close(constraint_->grammar(), arena_, parse_states_);
  if (constraint_->grammar().has_lists()) item_mask_ = mask_;
}

const TokenMask& Matcher::Mask() {
  uint64_t slice = std::numeric_limits<uint64_t>::max();
  while (!PrepareMask(slice)) slice = std::numeric_limits<uint64_t>::max();
  return mask_;
}

bool Matcher::PrepareMask(uint64_t& slice) {
  if (mask_valid_) return true;
  if (!making_) {
    making_.emplace();
    making_->begin = making_->kept = arena_.mark();
    mask_.Clear();
    if (may_end_ && !ended_ && !too_large_) {
      for (const api::TokenId id : constraint_->vocabulary().eos_tokens()) mask_.Set(id);
    }
  }
  if (!ended_ && !too_large_ && !FillMask(slice)) return false;
  if (allowance_.spent()) mask_.Clear();
  arena_.Rewind(making_->begin);
  making_.reset();
  mask_valid_ = true;
  return true;
}

bool Matcher::FillMask(uint64_t& slice) {
  while (making_->state < parse_states_.size() && !allowance_.spent()) {
    const bool finished = AddTokensAt(parse_states_[making_->state], slice);
    arena_.Rewind(finished ? making_->begin : making_->kept);
    if (!finished) return allowance_.spent();
    const size_t next = making_->state + 1;
    const ParseArena::Mark begin = making_->begin;
    making_.emplace(MaskInProgress{.state = next, .begin = begin, .kept = begin});
  }
  return true;
}

// Inserting an item reads all of it: once per mask, not in each piece.
const ListItems& Matcher::ItemsOf(const ParseState& at) {
  if (!making_->items) {
    making_->items = arena_.sets.InsertLast(at.items);
    making_->kept = arena_.mark();
  }
  return *making_->items;
}

bool Matcher::AddTokensAt(const ParseState& at, uint64_t& slice) {
  switch (constraint_->grammar().KindOf(at.state)) {
    case RuleKind::kText:
    case RuleKind::kCountedText:
    case RuleKind::kCountedList:
      return AddTokensOf(at, slice);
    case RuleKind::kDistinctList:
      scratch_[0].assign(1, {at.state, at.stack, ItemsOf(at)});
      return constraint_->masks_.AddAll(constraint_->vocabulary().all(), scratch_[0], arena_, allowance_,
                                        mask_, making_->at, slice);
    case RuleKind::kDistinctItem:
      return AddTokensInItem({at.state, at.stack, ItemsOf(at)}, slice);
  }
  return true;
}

bool Matcher::FindOwn(const ParseState& at, uint64_t& slice) {
  making_->own = constraint_->masks_.Of(constraint_->masks_.PlaceOf(at), allowance_, making_->partial, slice);
  return making_->own != nullptr;
}

void Matcher::AddOwn(TokenMask& out) const {
  const StateMask& own = *making_->own;
  if (own.plain > 0) out.Add(constraint_->vocabulary().PlainUpTo(own.plain));
  if (own.dense) out.Add(*own.dense);
  for (const api::TokenId id : own.tokens) out.Set(id);
}

bool Matcher::CloseAfter(const ParseState& end, uint64_t& slice) {
  if (slice <= making_->at.repeats) return false;
  ParseStates& after = scratch_[0];
  after.assign(1, Return(constraint_->grammar(), arena_, end));
  const uint64_t before = arena_.looked_at;
  Close(constraint_->grammar(), arena_, after);
  if (making_->after_steps) return true;  // then it is among the repeats
  const uint64_t steps = arena_.looked_at - before;
  making_->after_steps = steps;
  allowance_.Charge(steps);
  slice -= std::min(slice - 1, steps);
  return true;
}

bool Matcher::AddOpen(const TokenTrie& trie, uint64_t& slice) {
  const uint32_t node = making_->own->open[making_->open];
  if (constraint_->masks_.AddBelow(trie, node, scratch_[0], arena_, allowance_, mask_, making_->at, slice))
    return true;
  making_->at.repeats += *making_->after_steps;
  return false;
}

bool Matcher::AddTokensOf(const ParseState& at, uint64_t& slice) {
  if (!making_->own) {
    if (!FindOwn(at, slice)) return false;
    AddOwn(mask_);
  }
  const StateMask& own = *making_->own;
  if (own.open.empty() || at.stack == kEmptyStack) return true;
  if (!CloseAfter(at, slice)) return false;
  const VocabularyIndex& vocabulary = constraint_->vocabulary();
  const TokenTrie& trie = own.of_other ? vocabulary.other() : vocabulary.all();
  for (; making_->open < own.open.size(); ++making_->open, making_->at = {}) {
    if (!AddOpen(trie, slice)) return false;
  }
  return true;
}

// As above, but without items that the list already has.
bool Matcher::AddTokensInItem(const ParseState& at, uint64_t& slice) {
  const VocabularyIndex& vocabulary = constraint_->vocabulary();
  if (!making_->own) {
    if (!FindOwn(at, slice)) return false;
    item_mask_.Clear();
    AddOwn(item_mask_);
    constraint_->masks_.MaskUsedItems(vocabulary.all(), at.state, at.items, arena_.sets, allowance_,
                                      item_mask_, slice);
    mask_.Add(item_mask_);
  }
  const StateMask& own = *making_->own;
  const TokenTrie& trie = own.of_other ? vocabulary.other() : vocabulary.all();
  for (; making_->open < own.open.size(); ++making_->open, making_->at = {}, making_->after_steps = {}) {
    const uint32_t node = own.open[making_->open];
    const ParseArena::Mark mark = arena_.mark();
    ParseState over = at;
    for (const char c : vocabulary.PathTo(trie, node)) {
      over.items = arena_.sets.Write(over.items, static_cast<uint8_t>(c));
    }
    bool finished = true;
    if (!arena_.sets.Has(over.items)) finished = CloseAfter(over, slice) && AddOpen(trie, slice);
    arena_.Rewind(mark);
    if (!finished) return false;
  }
  return true;
}

bool Matcher::Empty() {
  return std::ranges::all_of(Mask().words(), [](uint64_t word) { return word == 0; });
}

std::optional<api::TokenId> Matcher::SingleAllowedToken() {
  const TokenMask& mask = Mask();
  std::optional<api::TokenId> only;
  for (size_t w = 0; w < mask.words().size(); ++w) {
    const uint64_t word = mask.words()[w];
    if (word == 0) continue;
    if (only || !std::has_single_bit(word)) return std::nullopt;
    only = static_cast<api::TokenId>(w * 64 + static_cast<size_t>(std::countr_zero(word)));
  }
  return only;
}

bool Matcher::Accept(api::TokenId token) {
  if (ended_) return false;
  if (making_) Mask();  // is charged as a whole
  if (constraint_->vocabulary().EndsGeneration(token)) {
    if (!may_end_) return false;
    ended_ = true;
    mask_valid_ = false;
    return true;
  }
  const std::string_view bytes = constraint_->vocabulary().Bytes(token);
  if (bytes.empty()) return false;
  const ParseArena::Mark mark = arena_.mark();
  const uint64_t looked_at = arena_.looked_at;
  const ParseStates* from = &parse_states_;
  bool ends = false;
  size_t turn = 0;
  bool cut_off = false;
  for (const char c : bytes) {
    ParseStates& to = scratch_[turn];
    ends = Read(constraint_->grammar(), arena_, *from, static_cast<uint8_t>(c), to);
    if (to.empty()) {
      arena_.Rewind(mark);
      cut_off_ = cut_off_ || (cut_off && mask_valid_ && mask_.Has(token));
      return false;
    }
    cut_off = cut_off || to.size() >= kParseStatesMax;
    from = &to;
    turn ^= 1U;
  }
  cut_off_ = cut_off_ || cut_off;
  parse_states_ = *from;
  BoundArena();
  may_end_ = ends;
  mask_valid_ = false;
  allowance_.Charge(arena_.looked_at - looked_at);
  allowance_.AddToken();
  steps_here_ = allowance_.left();
  return true;
}

// Depends on the tokens alone, as what masks push does not stay.
void Matcher::BoundArena() {
  if (arena_.stacks.size() > stacks_checked_at_) {
    DropUnusedStacks(arena_.stacks, parse_states_);
    stacks_checked_at_ = 2 * arena_.stacks.size() + kStacksUnchecked;
    too_large_ = too_large_ || arena_.stacks.size() > kStacksMax;
  }
  too_large_ = too_large_ || arena_.sets.used_bytes() > kSetBytesMax;
}

bool Matcher::Replay(api::TokenId token) {
  for (const ParseState& at : parse_states_) {
    if (constraint_->grammar().KindOf(at.state) != RuleKind::kDistinctList)
      allowance_.MarkCharged(constraint_->masks_.PlaceOf(at));
  }
  return Accept(token);
}

void Matcher::RestoreMaskSteps(uint64_t steps) {
  allowance_.Restore(steps);
  steps_here_ = allowance_.left();
}

}  // namespace quire::runner::constraint
