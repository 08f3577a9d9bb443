// The inside of a Sequence. Private to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/hybrid_state.h"
#include "cache/write.h"

namespace quire::cache {

// The PageViews of one group, kept from step to step so that a step touches only what it changes.
class ViewList {
 public:
  // Entries for positions >= `position` are no longer right.
  void Invalidate(Position position);
  // Views of the pages of [oldest, end); those before `begin` are as they were unless invalidated.
  // REQUIRES: `held` maps them.
  void Update(const HybridState& held, size_t group, Position oldest, Position begin, Position end);
  std::span<const PageView> views() const { return std::span(views_).subspan(start_); }

 private:
  std::vector<PageView> views_;
  size_t start_ = 0;         // views_[start_] is the first one in use
  int64_t first_index_ = 0;  // page index of views_[start_]
  Position valid_ = 0;       // entries for positions >= this are stale
};

struct SequenceState {
  explicit SequenceState(Pools* pools) : held(pools), views(held.groups.size()) {}
  explicit SequenceState(const HybridState& shared) : held(shared), views(held.groups.size()) {}

  void InvalidateViews(Position position) {
    for (ViewList& list : views) list.Invalidate(position);
  }

  HybridState held;
  std::vector<ViewList> views;  // [groups]
  bool in_step = false;
};

}  // namespace quire::cache
