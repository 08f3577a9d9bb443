// The state of a sequence or a snapshot: page tables per attention group and a state slot, all at one offset.
//
// Invariants
// - A full-attention group maps exactly the pages of [0, offset).
// - A window group that is present maps exactly the pages of [OldestVisible(offset), offset), none where that
//   range is empty; while a draft is open, those from OldestVisible(base) on. All mapped rows from
//   intact_from on are those of the sequence's tokens. One that is absent maps nothing and cannot be appended
//   to.
// - At offset 0 everything is present, nothing is mapped and no slot is held: the recurrent state is zero.
// - With recurrent layers, the state at offset > 0 is there exactly if a slot is held.
// Holding a state costs references only. Every live state is registered with its Pools, for invariant checks.
// Engine thread only.
#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/layout.h"
#include "cache/page_pool.h"
#include "cache/page_table.h"
#include "cache/slot_pool.h"
#include "cache/types.h"

namespace quire::cache {

class HybridState;
class Step;

using NodePromises = boost::container::small_vector<NodePromise, 4>;  // [groups]

// The memory of one cache.
struct Pools {
  Pools(Layout model_layout, size_t budget_bytes);
  ~Pools();

  int64_t PageOf(Position position) const { return position / layout.page_tokens; }
  // One past the page of the last position below `end`.
  int64_t PageEnd(Position end) const { return (end + layout.page_tokens - 1) / layout.page_tokens; }

  const Layout layout;
  MemoryBudget budget;
  std::vector<std::unique_ptr<BlockPool>> pages;  // [groups]
  std::unique_ptr<SlotPool> slots;
  // States in the form of a store (stored_state.h); of no capacity where that is float32.
  std::unique_ptr<SlotPool> stored_slots;
  uint64_t bytes_copied = 0;  // by copy on write, since the start
  uint64_t captures_skipped = 0;
  HybridState* states = nullptr;     // all live ones, linked
  std::unique_ptr<Step> spare_step;  // closed, for the next to be opened
};

class HybridState {
 public:
  struct Group {
    PageTable table;
    bool present = true;
    Position intact_from = 0;  // a range removal left rows of other tokens before it
  };

  explicit HybridState(Pools* pools);
  // Shares all that `other` holds.
  HybridState(const HybridState& other);
  HybridState& operator=(const HybridState& other);
  ~HybridState();

  Pools& pools() const { return *pools_; }
  Position offset() const { return offset_; }
  bool recurrent() const { return !pools_->layout.recurrent.empty(); }
  // Every layer has its state at offset().
  bool complete() const;
  bool has_recurrent_state() const { return !recurrent() || offset_ == 0 || static_cast<bool>(slot); }

  // Whether a window group has what a token at `position` <= offset() sees: the pages are mapped and their
  // rows intact, or such a token sees only itself.
  bool WindowReaches(size_t group, Position position) const;
  // First row that a present window group has.
  Position FirstRow(size_t group) const;
  // Whether every layer can rest at `position` <= offset().
  bool Reaches(Position position) const;
  // The deepest position <= max_position (and > 0) that every layer can rest at, or 0.
  Position DeepestReachable(Position max_position) const;

  // CutTo, RestAt and Advance throw std::bad_alloc, changing nothing; not while PromiseCuts covers them.
  // Moves to `position` <= offset(); what some layer cannot have there becomes absent.
  void CutTo(Position position);
  // Rests at `position` inside what is mapped, which may lie beyond offset(), with that state.
  // REQUIRES: every window that is present reaches `position`.
  void RestAt(Position position, SlotRef state);
  // After writes up to `offset`: windows let go of what neither a later token nor an open draft's base sees.
  void Advance(Position offset);
  // Memory for `times` calls of these three, on this state and on copies of it.
  NodePromises PromiseCuts(size_t times) const;

  // Whether the slot is in the form of a store. A sequence's never is.
  bool stored() const { return slot && slot.pool() == &pools_->stored_slots->blocks(); }

  // Bytes of the pages that intersect [from, offset) (full attention), of the window pages and of the slot.
  size_t BytesFrom(Position from) const;

  // KV before this position is what computing the tokens in place gives; later keys were shifted there.
  Position exact_until() const { return exact_until_; }
  void LimitExact(Position position) { exact_until_ = std::min(exact_until_, position); }

  std::vector<Group> groups;  // [layout.groups]
  SlotRef slot;

  // The base of an open draft, and the slot there; a copy does not share them.
  Position draft_from = INT64_MAX;
  SlotRef draft_slot;

 private:
  friend class HybridCache;
  struct IndexRange {
    int64_t from;
    int64_t to;
  };
  void Register();
  void ReserveRestAt(Position position) const;
  IndexRange PagesAt(size_t group, Position position) const;  // that a state at rest there maps

  Pools* pools_;
  Position offset_ = 0;
  Position exact_until_ = INT64_MAX;
  HybridState* next_ = nullptr;
  HybridState* previous_ = nullptr;
};

}  // namespace quire::cache
