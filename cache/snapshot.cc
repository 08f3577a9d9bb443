#include "cache/snapshot.h"

#include <utility>

#include "cache/check.h"
#include "cache/hybrid_state.h"

namespace quire::cache {

Snapshot::Snapshot() = default;
Snapshot::Snapshot(std::unique_ptr<HybridState> held, Position from) : held_(std::move(held)), from_(from) {}
Snapshot::Snapshot(Snapshot&& other) noexcept
    : held_(std::move(other.held_)), from_(std::exchange(other.from_, 0)) {}

Snapshot& Snapshot::operator=(Snapshot&& other) noexcept {
  held_ = std::move(other.held_);
  from_ = std::exchange(other.from_, 0);
  return *this;
}

Snapshot::~Snapshot() = default;

Position Snapshot::to() const { return held_ == nullptr ? from_ : held_->offset(); }
bool Snapshot::whole() const { return held_ != nullptr && held_->complete(); }

bool Snapshot::exact() const { return held_ == nullptr || held_->exact_until() >= held_->offset(); }

bool Snapshot::has_slot() const { return held_ != nullptr && held_->slot; }

bool Snapshot::SharesFront(const Snapshot& parent) const {
  const Pools& pools = held_->pools();
  bool same = true;
  for (size_t g = 0; g < held_->groups.size(); ++g) {
    if (pools.layout.groups[g].window > 0) continue;
    held_->groups[g].table.ForEach(0, pools.PageOf(from_), [&](int64_t index, BlockId page) {
      same = same && !parent.empty() && parent.held_->groups[g].table.Get(index) == page;
    });
  }
  return same;
}

bool Snapshot::has_window() const {
  if (held_ == nullptr) return false;
  for (size_t g = 0; g < held_->groups.size(); ++g) {
    if (held_->pools().layout.groups[g].window > 0 && !held_->groups[g].table.empty()) return true;
  }
  return false;
}

bool Snapshot::EndsInOwnPage(size_t group, const Snapshot& next) const {
  const Pools& pools = held_->pools();
  if (to() % pools.layout.page_tokens == 0) return false;
  const int64_t index = pools.PageOf(to());
  return held_->groups[group].table.Get(index) != next.held_->groups[group].table.Get(index);
}

Position Snapshot::DeepestRestorable(Position max_position) const {
  return held_ == nullptr ? 0 : held_->DeepestReachable(max_position);
}

size_t Snapshot::bytes() const { return held_ == nullptr ? 0 : held_->BytesFrom(from_); }

Snapshot Snapshot::SplitFront(Position at) {
  QUIRE_CACHE_CHECK(from_ < at && at < to());
  auto front = std::make_unique<HybridState>(*held_);
  front->CutTo(at);
  return Snapshot(std::move(front), std::exchange(from_, at));
}

void Snapshot::MergeFront(Snapshot parent) {
  QUIRE_CACHE_CHECK(!empty() && !parent.empty() && parent.to() == from_);
  from_ = parent.from_;
}

void Snapshot::AdoptState(const Snapshot& other) {
  QUIRE_CACHE_CHECK(!empty() && !other.empty() && other.to() == to());
  if (!held_->slot) held_->slot = other.held_->slot;
  for (size_t g = 0; g < held_->groups.size(); ++g) {
    if (!held_->groups[g].present) held_->groups[g] = other.held_->groups[g];
  }
}

void Snapshot::ShareFront(const Snapshot& parent, Position from) {
  QUIRE_CACHE_CHECK(!empty() && from < to());
  from_ = from;
  if (parent.empty()) return;
  QUIRE_CACHE_CHECK(parent.to() >= from);
  const Pools& pools = held_->pools();
  for (size_t g = 0; g < held_->groups.size(); ++g) {
    if (pools.layout.groups[g].window > 0) continue;
    PageTable& table = held_->groups[g].table;
    table = PageTable::Join(parent.held_->groups[g].table, table, pools.PageOf(from));
  }
}

std::span<const std::byte> Snapshot::Page(size_t group, int64_t page) const {
  if (held_ == nullptr) return {};
  const BlockId block = held_->groups[group].table.Get(page);
  if (block == kNoBlock) return {};
  const BlockPool& pool = *held_->pools().pages[group];
  return {pool.data(block), pool.block_bytes()};
}

std::span<const std::byte> Snapshot::Slot() const {
  if (!has_slot()) return {};
  return {held_->slot.data(), held_->slot.bytes()};
}

void Snapshot::ForEachPart(const std::function<void(const Part&)>& visit) const {
  if (held_ == nullptr) return;
  const Pools& pools = held_->pools();
  for (size_t g = 0; g < held_->groups.size(); ++g) {
    BlockPool& pool = *pools.pages[g];
    const int64_t first = pools.layout.groups[g].window > 0 ? 0 : pools.PageOf(from_);
    held_->groups[g].table.ForEach(first, INT64_MAX, [&](int64_t index, BlockId page) {
      visit(Part{Part::Kind::kPage, g, index * pools.layout.page_tokens,
                 std::span(pool.data(page), pool.block_bytes())});
    });
  }
  if (held_->slot) {
    visit(Part{Part::Kind::kSlot, 0, 0, std::span(held_->slot.data(), held_->slot.bytes())});
  }
}

}  // namespace quire::cache
