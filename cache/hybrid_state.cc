#include "cache/hybrid_state.h"

#include <algorithm>

#include "cache/check.h"

namespace quire::cache {

HybridState::HybridState(Pools* pools) : pools_(pools) {
  groups.reserve(pools->pages.size());
  for (const auto& pool : pools->pages) groups.push_back(Group{PageTable(pool.get())});
  Register();
}

HybridState::HybridState(const HybridState& other)
    : groups(other.groups),
      slot(other.slot),
      pools_(other.pools_),
      offset_(other.offset_),
      exact_until_(other.exact_until_) {
  Register();
}

HybridState& HybridState::operator=(const HybridState& other) {
  QUIRE_CACHE_CHECK(pools_ == other.pools_);
  if (this == &other) return *this;
  groups = other.groups;
  slot = other.slot;
  offset_ = other.offset_;
  exact_until_ = other.exact_until_;
  return *this;
}

HybridState::~HybridState() {
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : pools_->states) = next_;
}

void HybridState::Register() {
  next_ = pools_->states;
  if (next_ != nullptr) next_->previous_ = this;
  pools_->states = this;
}

bool HybridState::complete() const {
  return has_recurrent_state() &&
         std::ranges::all_of(groups, [](const Group& group) { return group.present; });
}

bool HybridState::WindowReaches(size_t group, Position position) const {
  const AttentionGroup& shape = pools_->layout.groups[group];
  const Position oldest = OldestVisible(shape, position);
  if (shape.window == 0 || oldest == position) return true;
  return groups[group].present && oldest >= FirstRow(group);
}

Position HybridState::FirstRow(size_t group) const {
  const AttentionGroup& shape = pools_->layout.groups[group];
  Position oldest = OldestVisible(shape, offset_);
  // A chunk that begins within a page has a new page: the old one was released when no token of it was
  // visible.
  if (!shape.chunked) oldest -= oldest % pools_->layout.page_tokens;
  return std::max(oldest, groups[group].intact_from);
}

bool HybridState::Reaches(Position position) const {
  if (position == 0) return true;
  if (recurrent() && (position != offset_ || !slot)) return false;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!WindowReaches(g, position)) return false;
  }
  return true;
}

Position HybridState::DeepestReachable(Position max_position) const {
  // A window that does not reach a position reaches none before it.
  const Position position = std::min(max_position, offset_);
  return Reaches(position) ? position : 0;
}

NodePromises HybridState::PromiseCuts(size_t times) const {
  NodePromises promises;
  promises.reserve(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    promises.emplace_back(pools_->pages[g]->nodes(), times * groups[g].table.ClipNodesMax());
  }
  return promises;
}

HybridState::IndexRange HybridState::PagesAt(size_t group, Position position) const {
  const int64_t end = pools_->PageEnd(position);
  const Position oldest = OldestVisible(pools_->layout.groups[group], position);
  return {oldest == position ? end : pools_->PageOf(oldest), end};
}

void HybridState::CutTo(Position position) {
  QUIRE_CACHE_CHECK(position >= 0 && position <= offset_);
  if (position == offset_) return;
  ReserveRestAt(position);
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g].present = WindowReaches(g, position);
    if (!groups[g].present) groups[g].table.Clip(0, 0);
  }
  RestAt(position, SlotRef());
}

void HybridState::ReserveRestAt(Position position) const {
  for (size_t g = 0; g < groups.size(); ++g) {
    const IndexRange pages = PagesAt(g, position);
    groups[g].table.ReserveClip(pages.from, pages.to);
  }
}

void HybridState::RestAt(Position position, SlotRef state) {
  ReserveRestAt(position);
  for (size_t g = 0; g < groups.size(); ++g) {
    const IndexRange pages = PagesAt(g, position);
    groups[g].table.Clip(pages.from, pages.to);
    groups[g].intact_from = std::min(groups[g].intact_from, position);
  }
  slot = std::move(state);
  offset_ = position;
  if (position <= exact_until_) exact_until_ = INT64_MAX;
}

void HybridState::Advance(Position offset) {
  const auto first = [&](size_t g) {
    const Position oldest = OldestVisible(pools_->layout.groups[g], std::min(offset, draft_from));
    return oldest == offset ? pools_->PageEnd(offset) : pools_->PageOf(oldest);
  };
  const auto windows = [&](const auto& change) {
    for (size_t g = 0; g < groups.size(); ++g) {
      if (pools_->layout.groups[g].window > 0) change(groups[g].table, first(g));
    }
  };
  windows([](const PageTable& table, int64_t from) { table.ReserveClip(from, INT64_MAX); });
  windows([](PageTable& table, int64_t from) { table.Clip(from, INT64_MAX); });
  offset_ = offset;
}

size_t HybridState::BytesFrom(Position from) const {
  const int64_t end = pools_->PageEnd(offset_);
  size_t bytes = slot ? slot.bytes() : 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const AttentionGroup& shape = pools_->layout.groups[g];
    if (groups[g].table.empty()) continue;
    const int64_t first = pools_->PageOf(shape.window > 0 ? OldestVisible(shape, offset_) : from);
    bytes += static_cast<size_t>(std::max<int64_t>(0, end - first)) * pools_->pages[g]->block_bytes();
  }
  return bytes;
}

}  // namespace quire::cache
