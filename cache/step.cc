// Begin: plan, reserve (all or nothing), then hand out a Step. Commit: move the offsets.
//
// Begin takes all that Commit needs: places and states for its captures, and a promise of the nodes that its
// cuts of page tables take. What a rollback, a commit and a cancel change is then private to the sequence or
// promised: they cannot fail.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <boost/container/small_vector.hpp>
#include <cstring>
#include <deque>
#include <new>
#include <utility>
#include <vector>

#include "cache/check.h"
#include "cache/hybrid_cache.h"
#include "cache/sequence_state.h"

namespace quire::cache {
namespace {

// The changes that made one sequence's writes private, so that they can be undone.
struct Undo {
  SequenceState* sequence;
  size_t group;
  BlockId old_page;   // what the boundary page was before it was copied, or kNoBlock
  bool was_unmapped;  // the boundary page did not exist
};

struct UndoSlot {
  SequenceState* sequence;
  BlockId old_slot;  // kNoBlock: there was none
};

// Is undone unless it is confirmed.
class Reservation {
 public:
  explicit Reservation(Pools* pools) : pools_(pools) {}
  ~Reservation() {
    if (!confirmed_) Rollback();
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // What was copied stays until the end, whatever is evicted meanwhile. To be called when all are reserved:
  // one that shares what it writes with another one writes in place where that has a copy.
  void PinCopied() {
    copied_pinned_ = true;
    ForEachCopied([](BlockPool& pool, BlockId block) { pool.AddReference(block); });
  }
  void Confirm() {
    confirmed_ = true;
    if (copied_pinned_) ForEachCopied([](BlockPool& pool, BlockId block) { pool.Release(block); });
  }

  // False when a pool ran out. Throws std::bad_alloc.
  bool Reserve(SequenceState* sequence, int32_t tokens) {
    for (size_t g = 0; g < pools_->pages.size(); ++g) {
      if (!ReservePages(sequence, g, tokens)) return false;
    }
    return !sequence->held.recurrent() || ReserveSlot(sequence);
  }

  // The nodes on the paths that it changes are private since ReservePages: it takes no memory.
  void Rollback() {
    for (auto undo = pages_.rbegin(); undo != pages_.rend(); ++undo) {
      HybridState& held = undo->sequence->held;
      undo->sequence->InvalidateViews();
      HybridState::Group& group = held.groups[undo->group];
      group.table.Clip(0, undo->was_unmapped ? 0 : pools_->PageEnd(held.offset()));
      if (undo->old_page == kNoBlock) continue;
      if (!copied_pinned_) pools_->pages[undo->group]->AddReference(undo->old_page);
      group.table.Put(pools_->PageOf(held.offset()), undo->old_page);
    }
    for (auto undo = slots_.rbegin(); undo != slots_.rend(); ++undo) {
      BlockPool& blocks = pools_->slots->blocks();
      if (undo->old_slot != kNoBlock && !copied_pinned_) blocks.AddReference(undo->old_slot);
      undo->sequence->held.slot = SlotRef(&blocks, undo->old_slot);
    }
    pages_.clear();
    slots_.clear();
  }

  // Other holders of a page that was copied still hold it while nothing is evicted, so a rollback can add a
  // reference again.
  bool ReservePages(SequenceState* sequence, size_t g, int32_t tokens) {
    HybridState& held = sequence->held;
    PageTable& table = held.groups[g].table;
    BlockPool& pool = *pools_->pages[g];
    int64_t index = pools_->PageOf(held.offset());
    const int64_t end = pools_->PageEnd(held.offset() + tokens);
    const bool mid_page = held.offset() % pools_->layout.page_tokens != 0;
    const BlockId boundary = mid_page ? table.Get(index) : kNoBlock;
    pages_.push_back(Undo{sequence, g, kNoBlock, mid_page && boundary == kNoBlock});
    if (boundary != kNoBlock) {
      if (!table.Exclusive(index)) {
        const BlockId copy = pool.Allocate();
        if (copy == kNoBlock) return false;
        std::memcpy(pool.data(copy), pool.data(boundary), pool.block_bytes());
        pools_->bytes_copied += pool.block_bytes();
        table.Put(index, copy);
        pages_.back().old_page = boundary;
      }
      ++index;
    }
    for (; index < end; ++index) {
      const BlockId page = pool.Allocate();
      if (page == kNoBlock) return false;
      table.Put(index, page);
    }
    return true;
  }

  bool ReserveSlot(SequenceState* sequence) {
    HybridState& held = sequence->held;
    if (held.slot && held.slot.exclusive()) return true;
    SlotRef fresh = held.slot ? pools_->slots->AllocateCopy(held.slot) : pools_->slots->AllocateZero();
    if (!fresh) return false;
    if (held.slot) pools_->bytes_copied += pools_->slots->blocks().block_bytes();
    slots_.push_back(UndoSlot{sequence, held.slot ? held.slot.id() : kNoBlock});
    held.slot = std::move(fresh);
    return true;
  }

  template <class Visit>
  void ForEachCopied(const Visit& visit) {
    for (const Undo& undo : pages_) {
      if (undo.old_page != kNoBlock) visit(*pools_->pages[undo.group], undo.old_page);
    }
    for (const UndoSlot& undo : slots_) {
      if (undo.old_slot != kNoBlock) visit(pools_->slots->blocks(), undo.old_slot);
    }
  }

  static constexpr size_t kUsual = 64;  // without memory of their own

  Pools* pools_;
  bool confirmed_ = false;
  bool copied_pinned_ = false;
  boost::container::small_vector<Undo, kUsual> pages_;
  boost::container::small_vector<UndoSlot, kUsual> slots_;
};

// Offsets strictly inside the write up to `end` that are to be captured, each once. Drafts are not captured.
std::vector<Position> InteriorCaptures(const SequenceState& state, Position end) {
  std::vector<Position> at;
  if (state.draft) return at;
  for (const Position position : state.scheduled) {
    if (position >= end) break;
    const bool repeated = !at.empty() && at.back() == position;
    if (position > state.held.offset() && !repeated) at.push_back(position);
  }
  return at;
}

class OpenStep final : public Step {
 public:
  explicit OpenStep(Pools* pools) : pools_(pools) {}

  static std::unique_ptr<OpenStep, CloseStep> Acquire(Pools* pools, size_t sequences) {
    if (!pools->spare_step) pools->spare_step = std::make_unique<OpenStep>(pools);
    auto* const step = static_cast<OpenStep*>(pools->spare_step.get());
    while (step->entries_.size() < sequences) step->entries_.emplace_back();
    step->committed_ = false;
    (void)pools->spare_step.release();
    return std::unique_ptr<OpenStep, CloseStep>(step);
  }

  // In the order of the step. Throws std::bad_alloc; the sequence is then not in the step.
  void Add(SequenceState* sequence, int32_t tokens) {
    Entry& entry = entries_[count_];
    const HybridState& held = sequence->held;
    entry.sequence = sequence;
    entry.offset = held.offset();
    entry.tokens = tokens;
    entry.slot_taken.store(false, std::memory_order_relaxed);
    AddCaptures(entry);
    AddRecord(entry);
    for (size_t g = 0; g < pools_->pages.size(); ++g) {
      const Position oldest = OldestVisible(pools_->layout.groups[g], entry.offset);
      sequence->views[g].Update(held, g, oldest, entry.offset, entry.offset + tokens);
    }
    sequence->in_step = true;
    ++count_;
  }

  // Memory for the cuts of Commit. To be called when all are added. Throws std::bad_alloc.
  void PromiseCuts() {
    for (size_t g = 0; g < pools_->pages.size(); ++g) {
      size_t nodes = 0;
      for (size_t i = 0; i < count_; ++i) {
        nodes += entries_[i].cuts * entries_[i].sequence->held.groups[g].table.ClipNodesMax();
      }
      cuts_.emplace_back(pools_->pages[g]->nodes(), nodes);
    }
  }

  size_t sequences() const override { return count_; }
  Position offset(size_t i) const override { return entries_[i].offset; }
  int32_t new_tokens(size_t i) const override { return entries_[i].tokens; }

  std::span<const PageView> Pages(size_t i, size_t group) const override {
    return entries_[i].sequence->views[group].views();
  }

  std::byte* Slot(size_t i) const override {
    if (pools_->layout.recurrent.empty()) return nullptr;
    entries_[i].slot_taken.store(true, std::memory_order_relaxed);
    return entries_[i].sequence->held.slot.data();
  }

  std::span<const StateCapture> Captures(size_t i) const override { return entries_[i].captures; }

  std::byte* Record(size_t i, size_t recurrent_layer) const override {
    const Entry& entry = entries_[i];
    const bool recorded = pools_->layout.recurrent[recurrent_layer].record_bytes > 0;
    if (entry.record.bytes == nullptr || !recorded) return nullptr;
    return entry.record.Layer(pools_->layout, recurrent_layer);
  }

  void Commit() override {
    QUIRE_CACHE_CHECK(!committed_);
    committed_ = true;
    cuts_.clear();
    for (size_t i = 0; i < count_; ++i) CommitEntry(entries_[i]);
  }

 private:
  struct Entry {
    SequenceState* sequence = nullptr;
    Position offset = 0;
    int32_t tokens = 0;
    mutable std::atomic<bool> slot_taken = false;
    std::vector<StateCapture> captures;
    std::vector<SlotRef> capture_slots;  // of `captures`
    size_t cuts = 0;                     // of its page tables, by Commit
    SequenceState::Record record;
  };

  void AddCaptures(Entry& entry) {
    const Position end = entry.offset + entry.tokens;
    const size_t captures = entry.sequence->draft ? 0 : entry.sequence->CapturesUpTo(end);
    entry.cuts = 1 + captures;
    entry.sequence->ReserveCaptures(captures);
    if (!entry.sequence->held.recurrent()) return;
    const std::vector<Position> interior = InteriorCaptures(*entry.sequence, end);
    entry.captures.reserve(interior.size());
    entry.capture_slots.reserve(interior.size());
    for (const Position at : interior) {
      SlotRef slot = pools_->slots->AllocateZero();
      if (!slot) return;
      entry.captures.push_back({static_cast<int32_t>(at - entry.offset), slot.data()});
      entry.capture_slots.push_back(std::move(slot));
    }
  }

  void AddRecord(Entry& entry) {
    if (!entry.sequence->draft) return;
    SequenceState::Draft& draft = *entry.sequence->draft;
    draft.records.reserve(draft.records.size() + 1);
    draft.rollback = entry.sequence->held.PromiseCuts(1);  // of the table as it is now
    size_t row = 0;
    for (const auto& layer : pools_->layout.recurrent) row += static_cast<size_t>(layer.record_bytes);
    const size_t bytes = row * static_cast<size_t>(entry.tokens);
    entry.record = std::exchange(entry.sequence->spare_record, {});
    entry.record.tokens = entry.tokens;
    if (entry.record.capacity >= bytes) return;
    entry.record.bytes = std::make_unique_for_overwrite<std::byte[]>(std::bit_ceil(bytes));
    entry.record.capacity = std::bit_ceil(bytes);
  }

  void CommitEntry(Entry& entry) {
    SequenceState& sequence = *entry.sequence;
    const Position end = entry.offset + entry.tokens;
    if (sequence.draft) {
      sequence.draft->records.push_back(std::move(entry.record));
      sequence.held.Advance(end);
    } else {
      CaptureInterior(entry);
      sequence.held.Advance(end);
      sequence.CaptureReached(end);
    }
    sequence.in_step = false;
  }

  // Windows still have all that the captures need; they let go afterwards.
  void CaptureInterior(Entry& entry) {
    SequenceState& sequence = *entry.sequence;
    size_t next = 0;
    auto at = sequence.scheduled.begin();
    for (; at != sequence.scheduled.end() && *at < entry.offset + entry.tokens; ++at) {
      while (next < entry.captures.size() && entry.offset + entry.captures[next].after < *at) ++next;
      const bool has_state = next < entry.captures.size() && entry.offset + entry.captures[next].after == *at;
      if (sequence.held.recurrent() && !has_state && *at != sequence.capture_from) {
        ++pools_->captures_skipped;
        continue;
      }
      sequence.Capture(*at, has_state ? entry.capture_slots[next] : SlotRef());
    }
    sequence.scheduled.erase(sequence.scheduled.begin(), at);
  }

  void Close() override {
    if (!committed_) Cancel();
    cuts_.clear();
    for (Entry& entry : entries_) {  // also one that could not be added
      entry.captures.clear();
      entry.capture_slots.clear();
      entry.record = {};
    }
    count_ = 0;
    std::unique_ptr<Step> self(this);
    if (!pools_->spare_step) pools_->spare_step = std::move(self);
  }

  void Cancel() {
    for (size_t i = 0; i < count_; ++i) {
      Entry& entry = entries_[i];
      SequenceState& sequence = *entry.sequence;
      HybridState& held = sequence.held;
      for (size_t g = 0; g < held.groups.size(); ++g) {
        // While drafting, pages that the base sees stay even where the next token sees none of them.
        const bool behind_base = sequence.draft && entry.offset > sequence.draft->base;
        const bool unneeded =
            !behind_base && OldestVisible(pools_->layout.groups[g], entry.offset) == entry.offset;
        held.groups[g].table.Clip(0, unneeded ? 0 : pools_->PageEnd(entry.offset));
      }
      if (entry.offset == 0 || entry.slot_taken.load(std::memory_order_relaxed)) held.slot = SlotRef();
      sequence.in_step = false;
    }
  }

  Pools* pools_;
  std::deque<Entry> entries_;  // the first count_ are of this step
  size_t count_ = 0;
  NodePromises cuts_;  // for Commit
  bool committed_ = false;
};

// Holds pointers into the sequence's state only.
class ReadView final : public StepView {
 public:
  explicit ReadView(SequenceState* sequence) : sequence_(sequence) {
    const HybridState& held = sequence->held;
    const Position end = offset(0);
    for (size_t g = 0; g < held.groups.size(); ++g) {
      const Position oldest = OldestVisible(held.pools().layout.groups[g], end);
      empty_.push_back(oldest == end);
      if (oldest != end) sequence->views[g].Update(held, g, oldest, end, end);
    }
  }

  size_t sequences() const override { return 1; }
  Position offset(size_t) const override {
    return sequence_->draft ? sequence_->draft->base : sequence_->held.offset();
  }
  int32_t new_tokens(size_t) const override { return 0; }
  std::span<const PageView> Pages(size_t, size_t group) const override {
    return empty_[group] ? std::span<const PageView>() : sequence_->views[group].views();
  }
  std::byte* Slot(size_t) const override {
    const SlotRef& slot = sequence_->draft ? sequence_->held.draft_slot : sequence_->held.slot;
    return slot ? slot.data() : nullptr;
  }

 private:
  SequenceState* sequence_;
  std::vector<bool> empty_;  // [groups]
};

}  // namespace

Result<void> HybridCache::CheckAppends(std::span<const Append> appends) const {
  const auto fail = [](ErrorCode code, size_t i, const char* what) {
    return std::unexpected(Error{code, fmt::format("appends[{}]: {}", i, what)});
  };
  for (size_t i = 0; i < appends.size(); ++i) {
    const Append& append = appends[i];
    if (append.sequence == nullptr || !*append.sequence) return fail(ErrorCode::kInvalid, i, "no sequence");
    if (append.tokens <= 0) return fail(ErrorCode::kInvalid, i, "no tokens");
    const SequenceState& state = *append.sequence->state_;
    if (&state.held.pools() != pools_.get()) return fail(ErrorCode::kInvalid, i, "sequence of another cache");
    if (state.in_step) return fail(ErrorCode::kInvalid, i, "the sequence is in a step");
    const auto same = [&](const Append& other) { return other.sequence == append.sequence; };
    if (std::ranges::any_of(appends.first(i), same)) {
      return fail(ErrorCode::kInvalid, i, "the sequence is named twice");
    }
    if (!state.held.complete()) {
      return fail(ErrorCode::kUnsupported, i,
                  "some layer has no state at the offset; restore the sequence first");
    }
  }
  return {};
}

Demand HybridCache::Need(std::span<const Append> appends) const {
  Demand demand = NoDemand();
  for (const Append& append : appends) {
    const SequenceState& state = *append.sequence->state_;
    const HybridState& held = state.held;
    const Position end = held.offset() + append.tokens;
    const int64_t first = pools_->PageOf(held.offset());
    const bool mid_page = held.offset() % pools_->layout.page_tokens != 0;
    for (size_t g = 0; g < demand.pages.size(); ++g) {
      const PageTable& table = held.groups[g].table;
      const bool in_place = mid_page && table.Get(first) != kNoBlock && table.Exclusive(first);
      demand.pages[g].need += pools_->PageEnd(end) - first - (in_place ? 1 : 0);
    }
    if (!held.recurrent()) continue;
    if (!held.slot || !held.slot.exclusive()) ++demand.slots.need;
    demand.capture_slots += static_cast<int64_t>(InteriorCaptures(state, end).size());
  }
  return demand;
}

Result<OwnedStep> HybridCache::Begin(std::span<const Append> appends) try {
  if (auto ok = CheckAppends(appends); !ok) return std::unexpected(std::move(ok.error()));
  const Demand demand = Need(appends);
  // Siblings that share what they write need less than the worst case, so the answer is not final.
  MakeRoom(demand);
  auto step = OpenStep::Acquire(pools_.get(), appends.size());
  Reservation reservation(pools_.get());
  for (const Append& append : appends) {
    if (reservation.Reserve(append.sequence->state_.get(), append.tokens)) continue;
    reservation.Rollback();
    const Demand now = Refreshed(demand);
    const bool slots = now.slots.need > now.slots.capacity - now.slots.used;
    return std::unexpected(Error{slots ? ErrorCode::kOutOfSlots : ErrorCode::kOutOfPages, now.ToString()});
  }
  if (demand.capture_slots > 0) {
    Demand captures = NoDemand();
    captures.slots.need = demand.capture_slots;
    reservation.PinCopied();
    MakeRoom(captures);
  }
  for (const Append& append : appends) step->Add(append.sequence->state_.get(), append.tokens);
  step->PromiseCuts();
  reservation.Confirm();
  return step;
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Result<std::unique_ptr<StepView>> HybridCache::View(Sequence& sequence) try {
  SequenceState& state = *sequence.state_;
  if (state.in_step) return std::unexpected(Error{ErrorCode::kInvalid, "the sequence is in a step"});
  if (!state.draft && !state.held.complete()) {
    return std::unexpected(Error{ErrorCode::kUnsupported, "some layer has no state at the offset"});
  }
  return std::make_unique<ReadView>(&state);
} catch (const std::bad_alloc&) {
  sequence.state_->InvalidateViews();
  return NoMemory();
}

}  // namespace quire::cache
