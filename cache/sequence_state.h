// The inside of a Sequence. Private to this folder.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/hybrid_state.h"
#include "cache/snapshot.h"
#include "cache/write.h"

namespace quire::cache {

// The PageViews of one group, kept from step to step so that a step touches only what it changes.
class ViewList {
 public:
  void Invalidate() { valid_ = 0; }
  // Views of the pages of [oldest, end); those before `begin` are as they were unless invalidated.
  // REQUIRES: `held` maps them.
  void Update(const HybridState& held, size_t group, Position oldest, Position begin, Position end);
  std::span<const PageView> views() const { return std::span(views_).subspan(start_); }

 private:
  std::vector<PageView> views_;
  size_t start_ = 0;         // views_[start_] is the first one in use
  int64_t first_index_ = 0;  // page index of views_[start_]
  Position valid_ = 0;       // entries for positions >= this are not to be trusted
};

struct SequenceState {
  // The recorded inputs of the recurrent layers in one step of a draft: per layer [tokens][record_bytes].
  struct Record {
    std::byte* Layer(const Layout& layout, size_t layer) const;

    int32_t tokens = 0;
    std::unique_ptr<std::byte[]> bytes;
    size_t capacity = 0;
  };

  // An open speculation. held.draft_from keeps window pages that the base sees until it closes, and
  // held.draft_slot the slot at the base, which makes the draft's first write copy it.
  struct Draft {
    Position base = 0;
    NodePromises rollback;  // memory to return to the base
    boost::container::small_vector<Record, 1> records;
  };

  explicit SequenceState(Pools* pools) : held(pools), views(held.groups.size()) {}
  explicit SequenceState(const HybridState& shared)
      : held(shared), views(held.groups.size()), capture_from(shared.offset()) {}

  // The state visible to others: `held`, at the draft's base while one is open.
  std::unique_ptr<HybridState> Committed() const;

  // To be called when pages before the offset have changed; Update looks at those behind it by itself.
  void InvalidateViews() {
    for (ViewList& list : views) list.Invalidate();
  }

  // Memory for that many captures but for the nodes of their tables (HybridState::PromiseCuts): with it,
  // Capture and CaptureReached cannot fail.
  void ReserveCaptures(size_t count);
  // Those that a write up to `end` makes at most.
  size_t CapturesUpTo(Position end) const;
  // A capture at `at`, inside what is mapped. `state` is the recurrent state there.
  void Capture(Position at, SlotRef state);
  // Takes, or gives up, the captures scheduled up to `end`, from the state at `end`.
  void CaptureReached(Position end);
  void CaptureOne(Position at, Position end);
  // The tokens from `position` on are no longer those that were captured: what holds them is dropped.
  void DiscardCaptures(Position position);

  HybridState held;
  std::vector<ViewList> views;  // [groups]
  bool in_step = false;
  std::optional<Draft> draft;
  Record spare_record;                                     // memory of a closed draft's, for the next
  std::vector<Position> scheduled;                         // ascending, beyond the offset
  std::vector<Snapshot> captured;                          // ascending
  std::vector<std::unique_ptr<HybridState>> spare_states;  // for captures to come; they hold nothing
  Position capture_from = 0;                               // where the next capture begins
};

}  // namespace quire::cache
