#include "runner/constraint/mask_table.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace quire::runner::constraint {
namespace {

constexpr size_t kBytesMax = size_t{32} << 20;  // of one table; beyond it the table is cleared
// What a hash table's entry takes beside its value.
constexpr size_t kNodeBytes = 48;

// UTF-8 after the first byte: what the next may be, and how many follow it.
struct Tail {
  uint8_t lead_first, lead_last;
  uint8_t first, last;  // of the second byte
  int more;             // bytes behind the second
};
constexpr auto kTails = std::to_array<Tail>({
    {0xC2, 0xDF, 0x80, 0xBF, 0},
    {0xE0, 0xE0, 0xA0, 0xBF, 1},
    {0xE1, 0xEC, 0x80, 0xBF, 1},
    {0xED, 0xED, 0x80, 0x9F, 1},
    {0xEE, 0xEF, 0x80, 0xBF, 1},
    {0xF0, 0xF0, 0x90, 0xBF, 2},
    {0xF1, 0xF3, 0x80, 0xBF, 2},
    {0xF4, 0xF4, 0x80, 0x8F, 2},
});

// Steps that the masks of an answer may take at first, more for each of its tokens, and what may be saved up:
// a number for a small vocabulary, walks through the whole of a larger one. Four million steps are some 40
// ms.
constexpr uint64_t kStepsAtFirst = 2'000'000, kWalksAtFirst = 64;
constexpr uint64_t kStepsPerToken = 500'000, kWalksPerToken = 8;
constexpr uint64_t kStepsMax = 4'000'000, kWalksMax = 128;

// Levels of more parse states do not keep their memory behind a walk.
constexpr size_t kLevelStatesKept = 32;

}  // namespace

MaskAllowance::MaskAllowance(const VocabularyIndex& vocabulary)
    : walk_(uint64_t{vocabulary.all().size()} + 1000),
      left_(std::max(kStepsAtFirst, kWalksAtFirst * walk_)) {}

bool MaskAllowance::Charge(uint64_t steps) {
  spent_ = spent_ || steps > left_;
  left_ = spent_ ? 0 : left_ - steps;
  return !spent_;
}

bool MaskAllowance::ChargeOnce(const MaskPlace& place, uint64_t steps) {
  return charged_.insert(place).second ? Charge(steps) : !spent_;
}

uint64_t MaskAllowance::LimitOf(const MaskPlace& place) const {
  return charged_.contains(place) ? std::numeric_limits<uint64_t>::max() : left_;
}

uint64_t MaskAllowance::Max() const { return std::max(kStepsMax, kWalksMax * walk_); }

void MaskAllowance::AddToken() {
  if (spent_) return;
  left_ = std::min(left_ + std::max(kStepsPerToken, kWalksPerToken * walk_), Max());
}

// It comes from the runner before, through the daemon: neither is trusted with more than there can be.
void MaskAllowance::Restore(uint64_t left) {
  left_ = std::min(left, Max());
  spent_ = left_ == 0;
}

MaskTable::MaskTable(const Grammar& grammar, const VocabularyIndex& vocabulary,
                     std::shared_ptr<MaskMemory> memory)
    : grammar_(grammar),
      vocabulary_(vocabulary),
      memory_(std::move(memory)),
      levels_(std::max(vocabulary.all().depth_max(), vocabulary.other().depth_max()) + 2),
      marks_(levels_.size()),
      level_steps_(levels_.size()),
      set_nodes_(levels_.size()) {
  if (memory_) memory_->Add(*this);
}

MaskTable::~MaskTable() {
  if (memory_) memory_->Remove(*this);
}

MaskPlace MaskTable::PlaceOf(const ParseState& at) const {
  const RuleKind kind = grammar_.KindOf(at.state);
  if (kind != RuleKind::kCountedText && kind != RuleKind::kCountedList) return {at.state};
  return {at.state, grammar_.Representative(at.state, at.count, vocabulary_.all().depth_max())};
}

std::shared_ptr<const StateMask> MaskTable::Of(const MaskPlace& place, MaskAllowance& allowance,
                                               std::optional<PartialMask>& partial, uint64_t& slice) {
  if (const auto found = masks_.find(place); found != masks_.end()) {
    partial.reset();
    return allowance.ChargeOnce(place, found->second->steps) ? found->second : nullptr;
  }
  if (slice <= (partial ? partial->at.repeats : 0)) return nullptr;
  const uint64_t steps_max = allowance.LimitOf(place);
  const bool built = Build(place, steps_max, partial, slice);
  ReleaseWalk();
  if (!built) {
    if (partial->mask.steps > steps_max) allowance.Charge(std::numeric_limits<uint64_t>::max());
    return nullptr;
  }
  StateMask mask = std::move(partial->mask);
  partial.reset();
  if (!allowance.ChargeOnce(place, mask.steps)) return nullptr;
  return Insert(place, std::move(mask));
}

// Counts the parse states and calls looked at, and what they lead to.
uint64_t MaskTable::StepsTo(const ParseStates& to, uint64_t looked_at) {
  has_large_levels_ = has_large_levels_ || to.size() > kLevelStatesKept;
  return 1 + looked_at + 4 * to.size();
}

// A walk restores its levels when it goes on.
void MaskTable::ReleaseWalk() {
  if (!std::exchange(has_large_levels_, false)) return;
  for (Level& level : levels_) {
    if (level.parse_states.capacity() > kLevelStatesKept) level.parse_states = ParseStates();
  }
  arena_ = ParseArena();
}

void MaskTable::Clear() {
  masks_.clear();
  after_plain_.clear();
  bytes_ = 0;
}

std::shared_ptr<const StateMask> MaskTable::Insert(const MaskPlace& place, StateMask mask) {
  size_t bytes = sizeof(StateMask) + kNodeBytes + mask.tokens.capacity() * sizeof(api::TokenId) +
                 mask.open.capacity() * sizeof(uint32_t);
  if (mask.dense) bytes += mask.dense->words().size_bytes();
  if (bytes_ + bytes > kBytesMax) Clear();
  if (memory_) memory_->MakeRoom(bytes);
  bytes_ += bytes;
  return masks_[place] = std::make_shared<const StateMask>(std::move(mask));
}

const MaskTable::PlainStep& MaskTable::AfterPlain(StateId state) {
  const auto found = after_plain_.find(state);
  if (found != after_plain_.end()) return found->second;
  bytes_ += sizeof(PlainStep) + kNodeBytes;
  return after_plain_[state] = ComputeAfterPlain(state);
}

MaskTable::PlainStep MaskTable::ComputeAfterPlain(StateId state) const {
  PlainStep step{.after = std::nullopt, .steps = 1};
  if (!grammar_.Calls(state).empty()) return step;
  const StateId target = grammar_.Next(state, ' ');
  for (uint8_t byte = 0x20; byte < 0x80; ++byte) {
    if (byte != '"' && byte != '\\' && grammar_.Next(state, byte) != target) return step;
  }
  // States inside a character: every way through it must lead to the target.
  const auto leads = [this, &step](StateId from, uint8_t first, uint8_t last, int more, StateId to,
                                   const auto& self) -> bool {
    if (from == kDead || !grammar_.Plain(from)) return from == kDead && to == kDead;
    StateId seen = kDead - 1;
    for (int byte = first; byte <= last; ++byte) {
      const StateId next = grammar_.Next(from, static_cast<uint8_t>(byte));
      if (next == seen) continue;
      seen = next;
      ++step.steps;
      if (more == 0 ? next != to : !self(next, 0x80, 0xBF, more - 1, to, self)) return false;
    }
    return true;
  };
  for (const Tail& tail : kTails) {
    StateId seen = kDead - 1;
    for (int lead = tail.lead_first; lead <= tail.lead_last; ++lead) {
      const StateId next = grammar_.Next(state, static_cast<uint8_t>(lead));
      if (next == seen) continue;
      seen = next;
      if (!leads(next, tail.first, tail.last, tail.more, target, leads)) return step;
    }
  }
  step.after = target;
  return step;
}

// Where any plain character leads back to the state, the count alone decides.
size_t MaskTable::CountedPlainRun(const MaskPlace& place, uint64_t& steps) {
  const PlainStep& next = AfterPlain(place.state);
  steps += next.steps;
  if (next.after != place.state || !grammar_.IsStep(place.state)) return 0;
  uint32_t run = 0;
  while (run < VocabularyIndex::kPlainLengths && grammar_.MayContinue(place.state, place.count + run + 1))
    ++run;
  steps += run;
  return run;
}

size_t MaskTable::PlainRun(const MaskPlace& place, uint64_t& steps, uint64_t steps_max) {
  const RuleKind kind = grammar_.KindOf(place.state);
  if (kind == RuleKind::kCountedList) return 0;
  if (kind == RuleKind::kCountedText) return CountedPlainRun(place, steps);
  StateId state = place.state;
  std::unordered_set<StateId> passed;
  bool ends_within = false;
  for (size_t run = 0;; ++run) {
    const PlainStep& next = AfterPlain(state);
    steps += next.steps;
    if (!next.after || steps > steps_max) return 0;
    if (*next.after == kDead) return ends_within ? 0 : run;
    if (!passed.insert(state).second) return kEndless;
    state = *next.after;
    // A text that ends its rule on the way may go on after it.
    ends_within |= grammar_.Accepting(state);
  }
}

bool MaskTable::Step(const Level& from, uint8_t byte, Level& to, bool& ends) {
  ends = false;
  to.state = kDead;
  to.parse_states.clear();
  if (from.state != kDead) {
    const StateId next = grammar_.Next(from.state, byte);
    if (next == kDead) return false;
    const RuleKind kind = grammar_.KindOf(next);
    to.count = from.count;
    if (kind == RuleKind::kCountedText || kind == RuleKind::kCountedList) {
      to.count += grammar_.IsStep(next) ? 1 : 0;
      if (!grammar_.MayContinue(next, to.count)) return false;
    }
    if (grammar_.Plain(next) && (within_item_ || kind != RuleKind::kDistinctList)) {
      to.state = next;
      return true;
    }
    to.parse_states.push_back({next, kEmptyStack, {}, to.count});
    ends = Close(grammar_, arena_, to.parse_states);
    return true;
  }
  ends = Read(grammar_, arena_, from.parse_states, byte, to.parse_states);
  return !to.parse_states.empty();
}

void MaskTable::RestoreLevels(const TokenTrie& trie, uint32_t node) {
  arena_.Rewind(ParseArena().mark());
  marks_[0] = arena_.mark();
  if (node >= trie.size()) return;
  bool ends = false;
  uint32_t depth = 1;
  for (const char c : vocabulary_.PathTo(trie, node).substr(0, trie.depth(node) - 1)) {
    const uint64_t looked_at = arena_.looked_at;
    Step(levels_[depth - 1], static_cast<uint8_t>(c), levels_[depth], ends);
    level_steps_[depth] = StepsTo(levels_[depth].parse_states, arena_.looked_at - looked_at);
    marks_[depth++] = arena_.mark();
  }
}

uint64_t MaskTable::StepsToRestore(const TokenTrie& trie, uint32_t node, uint32_t top) const {
  if (node >= trie.size()) return 0;
  return std::accumulate(level_steps_.begin() + top + 1, level_steps_.begin() + trie.depth(node),
                         uint64_t{0});
}

// Preorder, skipping what cannot be read. `open` gets nodes where the rule's end was passed and something
// that can follow the rule comes behind.
bool MaskTable::WalkFrom(const MaskPlace& place, const TokenTrie& trie, uint64_t steps_max,
                         PartialMask& partial, uint64_t& slice) {
  StateMask& mask = partial.mask;
  within_item_ = grammar_.KindOf(place.state) == RuleKind::kDistinctItem;
  levels_[0].state = place.state;
  levels_[0].count = place.count;
  RestoreLevels(trie, partial.at.node);
  slice -= std::min(slice, std::exchange(partial.at.repeats, 0));
  const ByteSet& follow = grammar_.FollowOf(place.state);
  for (uint32_t& node = partial.at.node; node < trie.size();) {
    if (mask.steps > steps_max || slice == 0) {
      partial.at.repeats = StepsToRestore(trie, node, 0);
      return false;
    }
    const uint32_t depth = trie.depth(node);
    bool ends = false;
    arena_.Rewind(marks_[depth - 1]);
    const uint64_t looked_at = arena_.looked_at;
    const bool read = Step(levels_[depth - 1], trie.byte(node), levels_[depth], ends);
    marks_[depth] = arena_.mark();
    const uint64_t steps = StepsTo(levels_[depth].parse_states, arena_.looked_at - looked_at);
    level_steps_[depth] = steps;
    mask.steps += steps;
    slice -= std::min(slice, steps);
    if (!read) {
      node = trie.skip(node);
      continue;
    }
    for (const api::TokenId id : trie.tokens(node)) partial.accepted.Set(id);
    if (ends) {
      for (uint32_t child = node + 1; child < trie.skip(node); child = trie.skip(child)) {
        if (!follow.test(trie.byte(child))) continue;
        mask.open.push_back(node);
        break;
      }
    }
    ++node;
  }
  return mask.steps <= steps_max;
}

bool MaskTable::Build(const MaskPlace& place, uint64_t steps_max, std::optional<PartialMask>& partial,
                      uint64_t& slice) {
  if (!partial) {
    partial.emplace().accepted = TokenMask(vocabulary_.size());
    StateMask& mask = partial->mask;
    mask.plain = PlainRun(place, mask.steps, steps_max);
    mask.of_other = mask.plain > 0;
    slice -= std::min(slice, mask.steps);
  }
  StateMask& mask = partial->mask;
  if (!WalkFrom(place, mask.of_other ? vocabulary_.other() : vocabulary_.all(), steps_max, *partial, slice)) {
    return false;
  }
  const TokenMask& accepted = partial->accepted;
  const size_t count = accepted.Count();
  if (count * sizeof(api::TokenId) < accepted.words().size_bytes()) {
    mask.tokens = accepted.Ids();
  } else {
    mask.dense = std::make_shared<const TokenMask>(std::move(partial->accepted));
  }
  return true;
}

bool MaskTable::AddBelow(const TokenTrie& trie, uint32_t node, const ParseStates& from, ParseArena& arena,
                         MaskAllowance& allowance, TokenMask& out, WalkPosition& at, uint64_t& slice) {
  if (at.node == 0) at.node = node + 1;
  return AddNodes(trie, trie.skip(node), trie.depth(node), from, arena, allowance, out, at, slice);
}

bool MaskTable::AddAll(const TokenTrie& trie, const ParseStates& from, ParseArena& arena,
                       MaskAllowance& allowance, TokenMask& out, WalkPosition& at, uint64_t& slice) {
  return AddNodes(trie, trie.size(), 0, from, arena, allowance, out, at, slice);
}

bool MaskTable::AddNodes(const TokenTrie& trie, uint32_t end, uint32_t top, const ParseStates& from,
                         ParseArena& arena, MaskAllowance& allowance, TokenMask& out, WalkPosition& at,
                         uint64_t& slice) {
  uint32_t& node = at.node;
  if (node >= end || slice <= at.repeats) return node >= end;
  marks_[top] = arena.mark();
  const std::string_view path = vocabulary_.PathTo(trie, node);
  for (uint32_t depth = top + 1; depth < trie.depth(node); ++depth) {
    ReadLevel(depth, top, path[depth - 1], from, arena);
  }
  slice -= std::exchange(at.repeats, 0);
  while (node < end && slice > 0) {
    const uint32_t depth = trie.depth(node);
    const uint64_t steps = ReadLevel(depth, top, static_cast<char>(trie.byte(node)), from, arena);
    slice -= std::min(slice, steps);
    if (!allowance.Charge(steps)) {
      node = end;
    } else if (levels_[depth].parse_states.empty()) {
      node = trie.skip(node);
    } else {
      for (const api::TokenId id : trie.tokens(node)) out.Set(id);
      ++node;
    }
  }
  if (node < end) at.repeats = StepsToRestore(trie, node, top);
  arena.Rewind(marks_[top]);
  ReleaseWalk();
  return node >= end;
}

uint64_t MaskTable::ReadLevel(uint32_t depth, uint32_t top, char byte, const ParseStates& from,
                              ParseArena& arena) {
  const ParseStates& before = depth == top + 1 ? from : levels_[depth - 1].parse_states;
  ParseStates& after = levels_[depth].parse_states;
  arena.Rewind(marks_[depth - 1]);
  const uint64_t looked_at = arena.looked_at;
  Read(grammar_, arena, before, static_cast<uint8_t>(byte), after);
  marks_[depth] = arena.mark();
  return level_steps_[depth] = StepsTo(after, arena.looked_at - looked_at);
}

void MaskTable::MaskUsedItems(const TokenTrie& trie, StateId state, const ListItems& items,
                              const ItemSets& sets, MaskAllowance& allowance, TokenMask& out,
                              uint64_t& slice) {
  set_nodes_[0] = items.written == 0 ? items.set : items.node;
  if (set_nodes_[0] == 0) return;
  levels_[0].state = state;
  for (uint32_t at = 0; at < trie.size();) {
    if (!allowance.Charge(1)) return;
    slice -= std::min<uint64_t>(slice, 1);
    const uint32_t depth = trie.depth(at);
    const StateId next = grammar_.Next(levels_[depth - 1].state, trie.byte(at));
    const uint32_t node = next == kDead ? 0 : sets.Child(set_nodes_[depth - 1], trie.byte(at));
    if (node != 0 && sets.CountOf(node) < grammar_.RemainingTexts(next)) {
      levels_[depth].state = next;
      set_nodes_[depth] = node;
      ++at;
      continue;
    }
    const uint32_t end = trie.skip(at);
    for (; node != 0 && at < end; ++at) {
      for (const api::TokenId id : trie.tokens(at)) out.Reset(id);
    }
    at = end;
  }
}

}  // namespace quire::runner::constraint
