#include "cache/store_accounting.h"

#include <algorithm>
#include <functional>

#include "cache/check.h"
#include "cache/hybrid_state.h"

namespace quire::cache {

StoreAccounting::StoreAccounting(const HybridCache& cache)
    : pools_(cache.pools_.get()), counts_(pools_->pages.size() + 2) {}

void StoreAccounting::Reserve() {
  const auto reserve = [](std::vector<uint32_t>& counts, const BlockPool& pool) {
    if (counts.size() < pool.blocks_seen()) counts.resize(std::max(pool.blocks_seen(), 2 * counts.size()));
  };
  for (size_t g = 0; g < pools_->pages.size(); ++g) reserve(counts_[g], *pools_->pages[g]);
  reserve(counts_[pools_->pages.size()], pools_->slots->blocks());
  reserve(counts_.back(), pools_->stored_slots->blocks());
}

// A reference is what std::function holds in place.
template <class Visit>
void StoreAccounting::Range(const Snapshot& snapshot, const Visit& visit) const {
  for (size_t g = 0; g < pools_->pages.size(); ++g) {
    if (pools_->layout.groups[g].window > 0) continue;
    const auto page_of = [&](int64_t, BlockId page) { visit(Part{g, page}); };
    snapshot.held_->groups[g].table.ForEach(pools_->PageOf(snapshot.from()), INT64_MAX, std::ref(page_of));
  }
}

template <class Visit>
void StoreAccounting::Boundary(const Snapshot& snapshot, const Visit& visit) const {
  if (snapshot.to() % pools_->layout.page_tokens == 0) return;
  for (size_t g = 0; g < pools_->pages.size(); ++g) {
    if (pools_->layout.groups[g].window > 0) continue;
    visit(Part{g, snapshot.held_->groups[g].table.Get(pools_->PageOf(snapshot.to()))});
  }
}

template <class Visit>
void StoreAccounting::State(const Snapshot& snapshot, const Visit& visit) const {
  for (size_t g = 0; g < pools_->pages.size(); ++g) {
    if (pools_->layout.groups[g].window == 0) continue;
    const auto page_of = [&](int64_t, BlockId page) { visit(Part{g, page}); };
    snapshot.held_->groups[g].table.ForEach(0, INT64_MAX, std::ref(page_of));
  }
  if (!snapshot.held_->slot) return;
  visit(Part{pools_->pages.size() + (snapshot.held_->stored() ? 1 : 0), snapshot.held_->slot.id()});
}

size_t StoreAccounting::BlockBytes(size_t pool) const {
  if (pool < pools_->pages.size()) return pools_->pages[pool]->block_bytes();
  return (pool == pools_->pages.size() ? pools_->slots : pools_->stored_slots)->blocks().block_bytes();
}

size_t& StoreAccounting::Kind(size_t pool) {
  if (pool >= pools_->pages.size()) return slots_;
  return pools_->layout.groups[pool].window > 0 ? window_ : full_;
}

void StoreAccounting::Count(Part part) {
  std::vector<uint32_t>& counts = counts_[part.pool];
  if (counts.size() <= part.block) counts.resize(std::max<size_t>(part.block + 1, counts.size() * 2));
  (counts[part.block]++ == 0 ? Kind(part.pool) : shared_) += BlockBytes(part.pool);
  peak_ = std::max(peak_, total());
}

void StoreAccounting::Uncount(Part part) {
  uint32_t& count = counts_[part.pool][part.block];
  QUIRE_CACHE_CHECK(count > 0);
  (--count == 0 ? Kind(part.pool) : shared_) -= BlockBytes(part.pool);
}

size_t StoreAccounting::MissingBytes(Part part) const {
  const std::vector<uint32_t>& counts = counts_[part.pool];
  return part.block >= counts.size() || counts[part.block] == 0 ? BlockBytes(part.pool) : 0;
}

void StoreAccounting::Add(const Snapshot& leaf) {
  Range(leaf, [this](Part part) { Count(part); });
  AddState(leaf);
}

void StoreAccounting::Remove(const Snapshot& leaf) {
  Range(leaf, [this](Part part) { Uncount(part); });
  RemoveState(leaf);
}

size_t StoreAccounting::Missing(const Snapshot& leaf) const {
  size_t bytes = MissingState(leaf);
  Range(leaf, [&](Part part) { bytes += MissingBytes(part); });
  return bytes;
}

void StoreAccounting::AddUpper(const Snapshot& upper) {
  Boundary(upper, [this](Part part) { Count(part); });
  AddState(upper);
}

void StoreAccounting::RemoveUpper(const Snapshot& upper) {
  Boundary(upper, [this](Part part) { Uncount(part); });
  RemoveState(upper);
}

void StoreAccounting::AddState(const Snapshot& snapshot) {
  State(snapshot, [this](Part part) { Count(part); });
}

void StoreAccounting::RemoveState(const Snapshot& snapshot) {
  State(snapshot, [this](Part part) { Uncount(part); });
}

size_t StoreAccounting::MissingState(const Snapshot& snapshot) const {
  size_t bytes = 0;
  State(snapshot, [&](Part part) { bytes += MissingBytes(part); });
  return bytes;
}

StoreAccounting::Bytes StoreAccounting::BytesOf(const Snapshot& snapshot) const {
  Bytes bytes;
  if (snapshot.empty()) return bytes;
  const auto add = [&](Part part) {
    const size_t block = BlockBytes(part.pool);
    const bool is_slot = part.pool >= pools_->pages.size();
    const bool is_window = !is_slot && pools_->layout.groups[part.pool].window > 0;
    (is_slot ? bytes.slot : is_window ? bytes.window : bytes.full) += block;
    if (counts_[part.pool][part.block] > 1) bytes.shared += block;
  };
  Range(snapshot, add);
  State(snapshot, add);
  return bytes;
}

size_t StoreAccounting::StateBytes(const Snapshot& snapshot) const {
  // Behind its last page it has no full-attention pages.
  return snapshot.held_->BytesFrom(pools_->PageEnd(snapshot.to()) * pools_->layout.page_tokens);
}

bool StoreAccounting::operator==(const StoreAccounting& other) const {
  const auto trimmed = [](std::vector<uint32_t> counts) {
    while (!counts.empty() && counts.back() == 0) counts.pop_back();
    return counts;
  };
  for (size_t pool = 0; pool < counts_.size(); ++pool) {
    if (trimmed(counts_[pool]) != trimmed(other.counts_[pool])) return false;
  }
  return full_ == other.full_ && window_ == other.window_ && slots_ == other.slots_ &&
         shared_ == other.shared_;
}

}  // namespace quire::cache
