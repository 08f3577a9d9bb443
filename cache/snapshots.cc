// HybridCache: snapshots, captures and restores.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "cache/hybrid_cache.h"
#include "cache/sequence_state.h"
#include "cache/stored_state.h"

namespace quire::cache {
namespace {

// Pages of group g that a whole snapshot [from, to) counts: [first, end).
struct PageRange {
  int64_t first;
  int64_t end;
};

PageRange CountedPages(const Pools& pools, size_t g, Position from, Position to) {
  const AttentionGroup& shape = pools.layout.groups[g];
  const int64_t end = pools.PageEnd(to);
  if (shape.window == 0) return {pools.PageOf(from), end};
  const Position oldest = OldestVisible(shape, to);
  return {oldest == to ? end : pools.PageOf(oldest), end};
}

}  // namespace

Result<Snapshot> HybridCache::CaptureSnapshot(const Sequence& sequence, Position from) try {
  const SequenceState& state = *sequence.state_;
  if (state.in_step) return Fail(ErrorCode::kInvalid, "snapshot inside a step");
  std::unique_ptr<HybridState> held = state.Committed();
  if (from < 0 || from > held->offset()) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("snapshot from {} of a sequence of {}", from, held->offset()));
  }
  if (from == held->offset()) return Snapshot();
  return Snapshot(std::move(held), from);
} catch (const std::bad_alloc&) {
  return NoMemory();
}

bool HybridCache::Owns(const Snapshot& snapshot) const {
  return !snapshot.empty() && &snapshot.held_->pools() == pools_.get();
}

Result<Position> HybridCache::Restore(Sequence& sequence, const Snapshot& snapshot,
                                      Position max_position) try {
  SequenceState& state = *sequence.state_;
  if (state.in_step || state.draft) return Fail(ErrorCode::kInvalid, "restore inside a step or a draft");
  if (!snapshot.empty() && !Owns(snapshot)) {
    return Fail(ErrorCode::kInvalid, "snapshot of another cache");
  }
  const Position position = snapshot.DeepestRestorable(max_position);
  if (position <= 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("no offset up to {} of the snapshot [{}, {}) that every layer can be restored at",
                            std::min(max_position, snapshot.to()), snapshot.from(), snapshot.to()));
  }
  HybridState restored = *snapshot.held_;
  restored.CutTo(position);
  if (restored.stored()) {
    Demand demand = NoDemand();
    demand.slots.need = 1;
    SlotRef slot = MakeRoom(demand) ? pools_->slots->AllocateZero() : SlotRef();
    if (!slot) return Fail(ErrorCode::kOutOfSlots, Refreshed(demand).ToString());
    LoadState(pools_->layout, restored.slot.data(), slot.data());
    restored.slot = std::move(slot);
  }
  state.ReserveCaptures(state.CapturesUpTo(position));
  state.held = restored;
  state.InvalidateViews();
  state.captured.clear();
  state.capture_from = position;
  std::erase_if(state.scheduled, [&](Position at) { return at < position; });
  state.CaptureReached(position);  // of no width
  return position;
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Result<void> HybridCache::ConvertToStored(Snapshot& snapshot) try {
  if (!Owns(snapshot)) return Fail(ErrorCode::kInvalid, "snapshot of another cache");
  const bool converts = pools_->layout.stored_state != ElementType::kF32;
  if (!converts || !snapshot.has_slot() || snapshot.held_->stored()) return {};
  Demand demand = NoDemand();
  demand.stored_slots.need = 1;
  SlotRef stored = MakeRoom(demand) ? pools_->stored_slots->AllocateZero() : SlotRef();
  if (!stored) return Fail(ErrorCode::kOutOfSlots, Refreshed(demand).ToString());
  StoreState(pools_->layout, snapshot.held_->slot.data(), stored.data());
  snapshot.held_->slot = std::move(stored);
  return {};
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Result<void> HybridCache::ScheduleCapture(Sequence& sequence, Position at) try {
  SequenceState& state = *sequence.state_;
  if (state.in_step || state.draft)
    return Fail(ErrorCode::kInvalid, "capture scheduled inside a step or a draft");
  if (at < state.held.offset()) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("capture at {} of a sequence of {}", at, state.held.offset()));
  }
  if (at > state.held.offset()) {
    state.scheduled.insert(std::ranges::upper_bound(state.scheduled, at), at);
  } else {
    state.ReserveCaptures(1);
    state.CaptureOne(at, at);
  }
  return {};
} catch (const std::bad_alloc&) {
  return NoMemory();
}

std::vector<Snapshot> HybridCache::TakeCaptures(Sequence& sequence) {
  if (sequence.state_->in_step) return {};  // it has reserved a place for those that it makes
  return std::exchange(sequence.state_->captured, {});
}

void HybridCache::CancelCaptures(Sequence& sequence) { sequence.state_->scheduled.clear(); }

Result<Snapshot> HybridCache::Import(const Snapshot& before, Position from, Position to,
                                     const std::function<void(const Snapshot::Part&)>& fill) try {
  if (from < 0 || from >= to || before.to() < from || to > (Position{1} << 40)) {
    return Fail(ErrorCode::kInvalid, fmt::format("import of [{}, {}) behind {}", from, to, before.to()));
  }
  if (!before.empty() && !Owns(before)) {
    return Fail(ErrorCode::kInvalid, "snapshot of another cache");
  }
  Demand demand = NoDemand();
  // As a store has it.
  const bool converted = pools_->layout.stored_state != ElementType::kF32;
  SlotPool& slots = converted ? *pools_->stored_slots : *pools_->slots;
  Demand::Kind& slots_demand = converted ? demand.stored_slots : demand.slots;
  slots_demand.need = pools_->layout.recurrent.empty() ? 0 : 1;
  for (size_t g = 0; g < demand.pages.size(); ++g) {
    const PageRange range = CountedPages(*pools_, g, from, to);
    demand.pages[g].need = range.end - range.first;
  }
  if (!MakeRoom(demand)) {
    const bool no_slot = slots_demand.need > slots.blocks().available();
    return Fail(no_slot ? ErrorCode::kOutOfSlots : ErrorCode::kOutOfPages, Refreshed(demand).ToString());
  }
  auto held = std::make_unique<HybridState>(pools_.get());
  for (size_t g = 0; g < held->groups.size(); ++g) {
    const PageRange range = CountedPages(*pools_, g, from, to);
    PageTable& table = held->groups[g].table;
    BlockPool& pool = *pools_->pages[g];
    if (from > 0 && pools_->layout.groups[g].window == 0) {
      table = before.held_->groups[g].table;
      table.Clip(0, pools_->PageOf(from));
    }
    for (int64_t index = range.first; index < range.end; ++index) {
      const BlockId page = pool.Allocate();
      table.Put(index, page);
      fill({Snapshot::Part::Kind::kPage, g, index * pools_->layout.page_tokens,
            std::span(pool.data(page), pool.block_bytes())});
    }
  }
  SlotRef slot = slots_demand.need > 0 ? slots.AllocateZero() : SlotRef();
  if (slot) fill({Snapshot::Part::Kind::kSlot, 0, 0, std::span(slot.data(), slot.bytes())});
  held->RestAt(to, std::move(slot));
  return Snapshot(std::move(held), from);
} catch (const std::bad_alloc&) {
  return NoMemory();
}

}  // namespace quire::cache
