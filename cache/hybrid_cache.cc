#include "cache/hybrid_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "cache/check.h"
#include "cache/sequence_state.h"

namespace quire::cache {
namespace {

constexpr size_t kMaxBlocks = size_t{1} << 31;

// Blocks of `bytes` that a budget can hold at most.
uint32_t BlocksWithin(size_t budget, size_t bytes) {
  return bytes == 0 ? 0 : static_cast<uint32_t>(std::min(budget / bytes, kMaxBlocks));
}

Result<void> CheckCapacity(const Layout& layout, const Capacity& capacity) {
  if (!capacity.pages.empty() && capacity.pages.size() != layout.groups.size()) {
    return Fail(ErrorCode::kInvalid, fmt::format("capacity.pages has {} entries for {} attention groups",
                                                 capacity.pages.size(), layout.groups.size()));
  }
  for (size_t g = 0; g < capacity.pages.size(); ++g) {
    if (capacity.pages[g] <= 0) {
      return Fail(ErrorCode::kInvalid, fmt::format("capacity.pages[{}] = {}", g, capacity.pages[g]));
    }
  }
  if (capacity.slots < 0)
    return Fail(ErrorCode::kInvalid, fmt::format("capacity.slots = {}", capacity.slots));
  const bool counted =
      (layout.groups.empty() || !capacity.pages.empty()) && (layout.recurrent.empty() || capacity.slots > 0);
  if (capacity.bytes == 0 && !counted) {
    return Fail(ErrorCode::kInvalid, "capacity.bytes = 0 needs a page count per group and a slot count");
  }
  return {};
}

// The budget in bytes: as given, or what the counts add up to.
Result<size_t> BudgetBytes(const Layout& layout, const Capacity& capacity) {
  if (capacity.bytes > 0) return capacity.bytes;
  size_t total = 0;
  size_t part = 0;
  bool overflow = __builtin_mul_overflow(SlotBytes(layout), static_cast<size_t>(capacity.slots), &total);
  for (size_t g = 0; g < capacity.pages.size(); ++g) {
    overflow |= __builtin_mul_overflow(PageBytes(layout, g), static_cast<size_t>(capacity.pages[g]), &part);
    overflow |= __builtin_add_overflow(total, part, &total);
  }
  if (overflow) return Fail(ErrorCode::kInvalid, "capacity overflows");
  return total;
}

}  // namespace

Pools::Pools(Layout model_layout, size_t budget_bytes)
    : layout(std::move(model_layout)), budget(budget_bytes) {}

Pools::~Pools() = default;

Result<std::unique_ptr<HybridCache>> HybridCache::Create(Layout layout, Capacity capacity) try {
  if (auto ok = Validate(layout); !ok) return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckCapacity(layout, capacity); !ok) return std::unexpected(std::move(ok.error()));
  auto budget = BudgetBytes(layout, capacity);
  if (!budget) return std::unexpected(std::move(budget.error()));
  auto pools = std::make_unique<Pools>(std::move(layout), *budget);
  for (size_t g = 0; g < pools->layout.groups.size(); ++g) {
    const size_t bytes = PageBytes(pools->layout, g);
    uint32_t pages = BlocksWithin(*budget, bytes);
    if (!capacity.pages.empty()) pages = std::min(pages, static_cast<uint32_t>(capacity.pages[g]));
    const int32_t window = pools->layout.groups[g].window;
    std::string kind = window == 0 ? "full attention" : fmt::format("window of {}", window);
    auto pool =
        BlockPool::Create(fmt::format("pages of group {} ({})", g, kind), bytes, pages, &pools->budget);
    if (!pool) return std::unexpected(std::move(pool.error()));
    pools->pages.push_back(std::move(*pool));
  }
  const size_t slot_bytes = SlotBytes(pools->layout);
  uint32_t slots = BlocksWithin(*budget, slot_bytes);
  if (capacity.slots > 0) slots = std::min(slots, static_cast<uint32_t>(capacity.slots));
  auto slot_pool = SlotPool::Create(slot_bytes, slots, &pools->budget);
  if (!slot_pool) return std::unexpected(std::move(slot_pool.error()));
  pools->slots = std::move(*slot_pool);
  const size_t stored_bytes = StoredSlotBytes(pools->layout);
  uint32_t stored_slots = 0;
  if (pools->layout.stored_state != ElementType::kF32) {
    stored_slots = BlocksWithin(*budget, stored_bytes);
    if (capacity.slots > 0) stored_slots = std::min(stored_slots, static_cast<uint32_t>(capacity.slots));
  }
  auto stored_pool = SlotPool::Create(stored_bytes, stored_slots, &pools->budget);
  if (!stored_pool) return std::unexpected(std::move(stored_pool.error()));
  pools->stored_slots = std::move(*stored_pool);
  return std::unique_ptr<HybridCache>(new HybridCache(std::move(pools)));
} catch (const std::bad_alloc&) {
  return NoMemory();
}

HybridCache::HybridCache(std::unique_ptr<Pools> pools) : pools_(std::move(pools)) {}

HybridCache::~HybridCache() { QUIRE_CACHE_CHECK(pools_->states == nullptr); }

const Layout& HybridCache::layout() const { return pools_->layout; }

Sequence HybridCache::NewSequence() try {
  return Sequence(std::make_unique<SequenceState>(pools_.get()));
} catch (const std::bad_alloc&) {
  return {};
}

Result<Sequence> HybridCache::Fork(const Sequence& source, Position position) try {
  // The step writes in place what the fork would share.
  if (source.state_->in_step) return Fail(ErrorCode::kInvalid, "fork inside a step");
  const std::unique_ptr<HybridState> held = source.state_->Committed();
  if (position < 0 || position > held->offset()) {
    return Fail(ErrorCode::kInvalid, fmt::format("fork at {} of a sequence of {}", position, held->offset()));
  }
  held->CutTo(position);
  return Sequence(std::make_unique<SequenceState>(*held));
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Result<void> HybridCache::Truncate(Sequence& sequence, Position position) try {
  SequenceState& state = *sequence.state_;
  HybridState& held = state.held;
  if (state.in_step || state.draft) return Fail(ErrorCode::kInvalid, "truncate inside a step or a draft");
  if (position < 0 || position > held.offset()) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("truncate to {} of a sequence of {}", position, held.offset()));
  }
  if (position == held.offset()) return {};
  if (!held.Reaches(position)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("cannot rewind from {} to {}: {}", held.offset(), position,
                            held.recurrent() ? "recurrent state cannot rewind" : "a window has slid"));
  }
  held.CutTo(position);
  state.DiscardCaptures(position);
  return {};
} catch (const std::bad_alloc&) {
  return NoMemory();
}

bool Demand::fits() const {
  size_t bytes = static_cast<size_t>(slots.need) * slots.block_bytes +
                 static_cast<size_t>(stored_slots.need) * stored_slots.block_bytes;
  bool counts = slots.need <= slots.capacity - slots.used &&
                stored_slots.need <= stored_slots.capacity - stored_slots.used;
  for (const Kind& kind : pages) {
    counts = counts && kind.need <= kind.capacity - kind.used;
    bytes += static_cast<size_t>(kind.need) * kind.block_bytes;
  }
  return counts && bytes <= bytes_left;
}

std::string Demand::ToString() const {
  std::string text;
  const auto add = [&](const std::string& name, const Kind& kind) {
    if (kind.need == 0) return;
    fmt::format_to(std::back_inserter(text), "{}: capacity {}, used {}, demand {}; ", name, kind.capacity,
                   kind.used, kind.need);
  };
  add("state slots", slots);
  add("stored states", stored_slots);
  for (size_t g = 0; g < pages.size(); ++g) add(fmt::format("pages of group {}", g), pages[g]);
  return text + fmt::format("bytes left {}", bytes_left);
}

size_t HybridCache::used_bytes() const { return pools_->budget.used(); }
size_t HybridCache::resident_bytes() const { return pools_->budget.resident(); }

CacheStats HybridCache::stats() const {
  CacheStats stats;
  stats.capacity_bytes = pools_->budget.capacity();
  stats.used_bytes = pools_->budget.used();
  stats.resident_bytes = pools_->budget.resident();
  for (const auto& pool : pools_->pages) {
    stats.pages_used.push_back(pool->used());
    stats.pages_capacity.push_back(pool->capacity());
  }
  stats.slots_used = pools_->slots->blocks().used();
  stats.slots_capacity = pools_->slots->blocks().capacity();
  stats.bytes_copied = pools_->bytes_copied;
  stats.captures_skipped = pools_->captures_skipped;
  return stats;
}

Demand HybridCache::NoDemand() const {
  Demand demand;
  for (const auto& pool : pools_->pages) {
    demand.pages.push_back(Demand::Kind{0, pool->used(), pool->capacity(), pool->block_bytes()});
  }
  const BlockPool& slots = pools_->slots->blocks();
  demand.slots = Demand::Kind{0, slots.used(), slots.capacity(), slots.block_bytes()};
  const BlockPool& stored = pools_->stored_slots->blocks();
  demand.stored_slots = Demand::Kind{0, stored.used(), stored.capacity(), stored.block_bytes()};
  demand.bytes_left = pools_->budget.left();
  return demand;
}

Demand HybridCache::Refreshed(Demand demand) const {
  Demand now = NoDemand();
  for (size_t g = 0; g < demand.pages.size(); ++g) now.pages[g].need = demand.pages[g].need;
  now.slots.need = demand.slots.need;
  now.stored_slots.need = demand.stored_slots.need;
  now.capture_slots = demand.capture_slots;
  return now;
}

bool HybridCache::MakeRoom(const Demand& demand) {
  const Demand now = Refreshed(demand);
  if (now.fits()) return true;
  // A demand beyond the whole capacity would only empty the reclaimer.
  bool possible = now.slots.need <= now.slots.capacity && now.stored_slots.need <= now.stored_slots.capacity;
  for (const Demand::Kind& kind : now.pages) possible = possible && kind.need <= kind.capacity;
  if (reclaimer_ == nullptr || !possible) return false;
  reclaimer_->Reclaim(now);
  return Refreshed(demand).fits();
}

Position HybridCache::LargestSequence(int32_t batch) const {
  const auto fits = [&](Position tokens) {
    Demand demand = NoDemand();
    demand.bytes_left = pools_->budget.capacity();
    demand.slots.used = 0;
    demand.slots.need = pools_->layout.recurrent.empty() ? 0 : 1;
    for (size_t g = 0; g < demand.pages.size(); ++g) {
      // A window is widest when its first and last page are cut by the page grid.
      const int32_t window = pools_->layout.groups[g].window;
      const int64_t bound = window == 0 ? INT64_MAX : pools_->PageEnd(Position{window} - 1 + batch) + 1;
      demand.pages[g].used = 0;
      demand.pages[g].need = std::min(pools_->PageEnd(tokens), bound);
    }
    return demand.fits();
  };
  Position low = 0;
  Position high = Position{1} << 40;
  if (fits(high)) return high;
  while (low + 1 < high) {
    const Position middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void HybridCache::ReleaseFree() {
  for (const auto& pool : pools_->pages) pool->ReleaseFree();
  pools_->slots->blocks().ReleaseFree();
  pools_->stored_slots->blocks().ReleaseFree();
  pools_->spare_step.reset();
}

}  // namespace quire::cache
