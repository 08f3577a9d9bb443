#include "runner/constraint/matcher.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace quire::runner::constraint {

Matcher::Matcher(std::shared_ptr<Constraint> constraint)
    : constraint_(std::move(constraint)),
      positions_{{constraint_->grammar().start(), kEmptyStack}},
      mask_(constraint_->vocabulary().size()) {
  may_end_ = Close(constraint_->grammar(), *memory_, positions_);
  if (constraint_->grammar().has_lists()) item_mask_ = mask_;
}

const TokenMask& Matcher::Mask() {
  if (!mask_valid_) FillMask();
  mask_valid_ = true;
  return mask_;
}

void Matcher::FillMask() {
  const VocabularyIndex& vocabulary = constraint_->vocabulary();
  mask_.Clear();
  if (ended_) return;
  if (may_end_) {
    for (const api::TokenId id : vocabulary.end_tokens()) mask_.Set(id);
  }
  const ItemSets::Mark mark = memory_->sets.mark();
  for (const Position& at : positions_) {
    switch (constraint_->grammar().KindOf(at.state)) {
      case RuleKind::kText:
        AddTokensOf(at);
        break;
      case RuleKind::kDistinctList:
        scratch_[0].assign(1, {at.state, at.stack, memory_->sets.Settle(at.items)});
        constraint_->masks_.AddAll(vocabulary.all(), scratch_[0], *memory_, mask_);
        break;
      case RuleKind::kDistinctItem:
        AddTokensInItem({at.state, at.stack, memory_->sets.Settle(at.items)});
        break;
    }
  }
  memory_->sets.Rewind(mark);
}

void Matcher::AddTokensOf(const Position& at) {
  const VocabularyIndex& vocabulary = constraint_->vocabulary();
  const StateMask& own = constraint_->masks_.Of(at.state);
  if (own.plain > 0) mask_.Add(vocabulary.PlainUpTo(own.plain));
  if (own.dense) mask_.Add(*own.dense);
  for (const api::TokenId id : own.tokens) mask_.Set(id);
  if (own.open.empty() || at.stack == kEmptyStack) return;
  Positions& after = scratch_[0];
  after.assign(1, Return(constraint_->grammar(), *memory_, at));
  Close(constraint_->grammar(), *memory_, after);
  const TokenTrie& trie = own.of_other ? vocabulary.other() : vocabulary.all();
  for (const uint32_t node : own.open) constraint_->masks_.AddBelow(trie, node, after, *memory_, mask_);
}

// As above, but what the list has already cannot be written again.
void Matcher::AddTokensInItem(const Position& at) {
  const VocabularyIndex& vocabulary = constraint_->vocabulary();
  const StateMask& own = constraint_->masks_.Of(at.state);
  item_mask_.Clear();
  if (own.plain > 0) item_mask_.Add(vocabulary.PlainUpTo(own.plain));
  if (own.dense) item_mask_.Add(*own.dense);
  for (const api::TokenId id : own.tokens) item_mask_.Set(id);
  constraint_->masks_.RemoveTaken(vocabulary.all(), at.state, at.items, memory_->sets, item_mask_);
  mask_.Add(item_mask_);
  const TokenTrie& trie = own.of_other ? vocabulary.other() : vocabulary.all();
  for (const uint32_t node : own.open) {
    const ItemSets::Mark mark = memory_->sets.mark();
    Position over = at;
    for (const char c : vocabulary.PathTo(trie, node)) {
      over.items = memory_->sets.Write(over.items, static_cast<uint8_t>(c));
    }
    if (!memory_->sets.Has(over.items)) {
      Positions& after = scratch_[0];
      after.assign(1, Return(constraint_->grammar(), *memory_, over));
      Close(constraint_->grammar(), *memory_, after);
      constraint_->masks_.AddBelow(trie, node, after, *memory_, mask_);
    }
    memory_->sets.Rewind(mark);
  }
}

bool Matcher::Empty() {
  return std::ranges::all_of(Mask().words(), [](uint64_t word) { return word == 0; });
}

std::optional<api::TokenId> Matcher::OnlyToken() {
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
  if (constraint_->vocabulary().EndsGeneration(token)) {
    if (!may_end_) return false;
    ended_ = true;
    mask_valid_ = false;
    return true;
  }
  const std::string_view bytes = constraint_->vocabulary().Bytes(token);
  if (bytes.empty()) return false;
  const ItemSets::Mark mark = memory_->sets.mark();
  const Positions* from = &positions_;
  bool ends = false;
  size_t turn = 0;
  for (const char c : bytes) {
    Positions& to = scratch_[turn];
    ends = Read(constraint_->grammar(), *memory_, *from, static_cast<uint8_t>(c), to);
    if (to.empty()) {
      memory_->sets.Rewind(mark);
      return false;
    }
    from = &to;
    turn ^= 1U;
  }
  positions_ = *from;
  may_end_ = ends;
  mask_valid_ = false;
  return true;
}

}  // namespace quire::runner::constraint
