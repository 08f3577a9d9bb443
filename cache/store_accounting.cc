#include "cache/store_accounting.h"

#include <algorithm>

#include "cache/check.h"
#include "cache/hybrid_state.h"

namespace quire::cache {

StoreAccounting::StoreAccounting(const HybridCache& cache)
    : pools_(cache.pools_.get()), counts_(pools_->pages.size() + 1) {}

std::vector<StoreAccounting::Part> StoreAccounting::Range(const Snapshot& snapshot) const {
  std::vector<Part> parts;
  for (size_t g = 0; g < pools_->pages.size(); ++g) {
    if (pools_->layout.groups[g].window > 0) continue;
    snapshot.held_->groups[g].table.ForEach(pools_->PageOf(snapshot.from()), INT64_MAX,
                                            [&](int64_t, BlockId page) {
                                              parts.push_back({g, page});
                                            });
  }
  return parts;
}

std::vector<StoreAccounting::Part> StoreAccounting::Boundary(const Snapshot& snapshot) const {
  std::vector<Part> parts;
  if (snapshot.to() % pools_->layout.page_tokens == 0) return parts;
  for (size_t g = 0; g < pools_->pages.size(); ++g) {
    if (pools_->layout.groups[g].window > 0) continue;
    parts.push_back({g, snapshot.held_->groups[g].table.Get(pools_->PageOf(snapshot.to()))});
  }
  return parts;
}

std::vector<StoreAccounting::Part> StoreAccounting::State(const Snapshot& snapshot) const {
  std::vector<Part> parts;
  for (size_t g = 0; g < pools_->pages.size(); ++g) {
    if (pools_->layout.groups[g].window == 0) continue;
    snapshot.held_->groups[g].table.ForEach(0, INT64_MAX, [&](int64_t, BlockId page) {
      parts.push_back({g, page});
    });
  }
  if (snapshot.held_->slot) parts.push_back({pools_->pages.size(), snapshot.held_->slot.id()});
  return parts;
}

size_t StoreAccounting::BlockBytes(size_t pool) const {
  return pool == pools_->pages.size() ? pools_->slots->blocks().block_bytes()
                                      : pools_->pages[pool]->block_bytes();
}

size_t& StoreAccounting::Kind(size_t pool) {
  if (pool == pools_->pages.size()) return slots_;
  return pools_->layout.groups[pool].window > 0 ? window_ : full_;
}

void StoreAccounting::Count(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    std::vector<uint32_t>& counts = counts_[part.pool];
    if (counts.size() <= part.block) counts.resize(std::max<size_t>(part.block + 1, counts.size() * 2));
    (counts[part.block]++ == 0 ? Kind(part.pool) : shared_) += BlockBytes(part.pool);
  }
  peak_ = std::max(peak_, total());
}

void StoreAccounting::Uncount(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    uint32_t& count = counts_[part.pool][part.block];
    QUIRE_CACHE_CHECK(count > 0);
    (--count == 0 ? Kind(part.pool) : shared_) -= BlockBytes(part.pool);
  }
}

size_t StoreAccounting::Missing(const std::vector<Part>& parts) const {
  size_t bytes = 0;
  for (const Part& part : parts) {
    const std::vector<uint32_t>& counts = counts_[part.pool];
    if (part.block >= counts.size() || counts[part.block] == 0) bytes += BlockBytes(part.pool);
  }
  return bytes;
}

void StoreAccounting::Add(const Snapshot& leaf) {
  Count(Range(leaf));
  AddState(leaf);
}

void StoreAccounting::Remove(const Snapshot& leaf) {
  Uncount(Range(leaf));
  RemoveState(leaf);
}

size_t StoreAccounting::Missing(const Snapshot& leaf) const {
  return Missing(Range(leaf)) + MissingState(leaf);
}

void StoreAccounting::AddUpper(const Snapshot& upper) {
  Count(Boundary(upper));
  AddState(upper);
}

void StoreAccounting::RemoveUpper(const Snapshot& upper) {
  Uncount(Boundary(upper));
  RemoveState(upper);
}

void StoreAccounting::AddState(const Snapshot& snapshot) { Count(State(snapshot)); }
void StoreAccounting::RemoveState(const Snapshot& snapshot) { Uncount(State(snapshot)); }
size_t StoreAccounting::MissingState(const Snapshot& snapshot) const { return Missing(State(snapshot)); }

StoreAccounting::Bytes StoreAccounting::BytesOf(const Snapshot& snapshot) const {
  Bytes bytes;
  if (snapshot.empty()) return bytes;
  const auto add = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const size_t block = BlockBytes(part.pool);
      const bool is_slot = part.pool == pools_->pages.size();
      const bool is_window = !is_slot && pools_->layout.groups[part.pool].window > 0;
      (is_slot ? bytes.slot : is_window ? bytes.window : bytes.full) += block;
      if (counts_[part.pool][part.block] > 1) bytes.shared += block;
    }
  };
  add(Range(snapshot));
  add(State(snapshot));
  return bytes;
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
