// The hybrid cache of one model: slot-mapped, copy-on-write, over every layer kind of its layout.
//
//   auto cache = HybridCache::Create(layout, {.bytes = 4 << 30});
//   Sequence a = (*cache)->NewSequence();
//   const Append appends[] = {{.sequence = &a, .tokens = 17}};
//   auto step = (*cache)->Begin(appends);      // plans and reserves; an error changed nothing
//   model.Forward(batch, **step, ...);         // writes K, V and state through StepView
//   (*step)->Commit();                         // a.offset() is now 17
//   auto b = (*cache)->Fork(a, 17);            // shares every page and the slot; copies nothing
//
// Ownership: the cache outlives its sequences, snapshots and steps; each of them is a move-only handle.
// Threads: one thread (the engine's) calls everything here; inside a step compute threads use the StepView.
// Costs: fork, snapshot, restore, truncate share structure in O(log length). The first write to something
// shared copies at most one page per attention group and one state slot. Errors: kOutOfPages and kOutOfSlots
// name capacity, used and demand. Any error leaves every sequence as it was. kOutOfMemory: the C++ heap has
// no memory for the books of the cache. Closing a step or a draft, taking captures and destroying a handle
// need none.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/layout.h"
#include "cache/sequence.h"
#include "cache/snapshot.h"
#include "cache/speculation.h"
#include "cache/types.h"
#include "cache/write.h"

namespace quire::cache {

struct Pools;

// The capacity of a cache. Address space is reserved at once; memory is taken as it is used and, when one
// pool needs what another has freed, given back in between.
struct Capacity {
  size_t bytes = 0;                 // of all pages and slots together; 0 = bounded by the counts only
  std::vector<int32_t> pages = {};  // per attention group; empty = as many as `bytes` holds
  int32_t slots = 0;                // 0 = as many as `bytes` holds
};

struct Append {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;  // > 0
};

// The worst-case demand of a batch, beside the available amount.
struct Demand {
  struct Kind {
    int64_t need = 0;
    int64_t used = 0;
    int64_t capacity = 0;
    size_t block_bytes = 0;
  };
  boost::container::small_vector<Kind, 4> pages;  // [attention groups]
  Kind slots;
  Kind stored_slots;  // in the form of a store
  int64_t capture_slots =
      0;                  // for scheduled captures, beside slots.need; a step goes on without those it lacks
  size_t bytes_left = 0;  // of the common budget

  bool fits() const;             // without capture_slots
  std::string ToString() const;  // capacity, used and demand of every kind that is needed
};

// Gives up cached memory when a step or a range removal would not fit. Called on the engine thread, before
// the cache's answer; may drop snapshots, must not touch sequences.
class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  // Until cache.Refreshed(demand).fits(), or nothing more can be given up.
  virtual void Reclaim(const Demand& demand) = 0;
};

// Consecutive keys of one head of one layer in a page, after RemoveRange moved them.
struct MovedKeys {
  size_t group = 0;
  int32_t layer = 0;
  int32_t kv_head = 0;
  std::byte* head = nullptr;  // where the head's keys begin in the page; see ForEachKeyPlane
  int32_t row = 0;            // of the first of them in the page
  int32_t tokens = 0;
  Position old_first = 0;  // position of the first of them before
  Position new_first = 0;  // and now
};
using RotateKeys = std::function<void(const MovedKeys&)>;

struct CacheStats {
  size_t capacity_bytes = 0;
  size_t used_bytes = 0;                // pages and slots that someone holds, each once
  size_t resident_bytes = 0;            // and those freed but not yet given back
  std::vector<int64_t> pages_used;      // [attention groups]
  std::vector<int64_t> pages_capacity;  // likewise, if the group had the budget alone
  int64_t slots_used = 0;
  int64_t slots_capacity = 0;
  uint64_t bytes_copied = 0;      // by copy on write, since the start
  uint64_t captures_skipped = 0;  // no free slot, or inside a draft
};

// One forward pass. Destroyed without Commit() it is canceled: offsets, KV and windows are as before; a
// sequence whose Slot() was taken has lost its recurrent state (ready() is false) unless it was at offset 0.
class Step : public StepView {
 public:
  // Moves every sequence's offset by its token count. REQUIRES: called at most once.
  virtual void Commit() = 0;

 private:
  friend struct CloseStep;
  virtual void Close() = 0;  // the owner is done with it; its memory may serve a later step
};

struct CloseStep {
  void operator()(Step* step) const { step->Close(); }
};
using OwnedStep = std::unique_ptr<Step, CloseStep>;

class HybridCache {
 public:
  // kInvalid names the layout's or the capacity's bad field; kOutOfPages when address space cannot be
  // reserved.
  static Result<std::unique_ptr<HybridCache>> Create(Layout layout, Capacity capacity);
  ~HybridCache();  // REQUIRES: no handle is left

  const Layout& layout() const;

  // At offset 0 with zero recurrent state; holds nothing yet. Refers to nothing where there is no memory for
  // it.
  Sequence NewSequence();

  // A sequence of the first `position` tokens. Layers that cannot follow leave it not ready(): recurrent
  // state unless `position` is the source's offset (then the slot is shared) or 0; a window unless it has not
  // slid since. kInvalid: position outside [0, offset], or a step is open on the source.
  Result<Sequence> Fork(const Sequence& source, Position position);

  // Rewinds to `position`; captures beyond it are dropped. kUnsupported when some layer cannot: recurrent
  // state unless already there or 0, a window that has slid. kInvalid: position outside [0, offset], or a
  // step or a draft is open.
  Result<void> Truncate(Sequence& sequence, Position position);

  // Removes [begin, end), 0 <= begin < end <= offset, and moves later tokens down by end - begin; `rotate`
  // then rotates their keys to their new positions (null: keys hold no positions). Pages that others share
  // are replaced by private copies first. The result is not what computing the remaining tokens would give:
  // snapshots of it are not exact() beyond `begin`. Captures beyond `begin` are dropped. kUnsupported: the
  // layout has recurrent layers, or a window no longer has what it would show. kOutOfPages. kInvalid: the
  // range, or a step or a draft is open.
  Result<void> RemoveRange(Sequence& sequence, Position begin, Position end, const RotateKeys& rotate);

  // [from, offset) of a sequence (of its base while it drafts). Empty where from == offset. kInvalid: from
  // outside [0, offset], or a step is open.
  Result<Snapshot> CaptureSnapshot(const Sequence& sequence, Position from = 0);

  // Moves the sequence to the deepest offset <= max_position that all layers of the snapshot can reach, and
  // returns that offset (> 0). Its previous state and pending captures are released. kUnsupported: there is
  // no such offset, and the sequence is unchanged. kInvalid: a step or a draft is open, or the snapshot is of
  // another cache. A state in the form of a store takes a slot: making room for it may give up the snapshot
  // itself, which is not used afterwards. kOutOfSlots: there is none, and the sequence is unchanged.
  Result<Position> Restore(Sequence& sequence, const Snapshot& snapshot, Position max_position = INT64_MAX);

  // Has the coming writes capture a snapshot when the sequence passes `at`, as often as it is called; the
  // batch is not cut for it. Each capture begins where the one before it ended (the first where the sequence
  // began, was forked or restored); one of no width is empty. An interior capture of recurrent state takes a
  // slot; where none is left it is skipped and counted. kInvalid: at < offset, a step or a draft is open.
  Result<void> ScheduleCapture(Sequence& sequence, Position at);
  // Captures so far of tokens that the sequence still has, ascending; those not reached stay scheduled. After
  // a canceled prefill: what its committed steps had reached. None inside a step.
  std::vector<Snapshot> TakeCaptures(Sequence& sequence);
  void CancelCaptures(Sequence& sequence);  // drops what is still scheduled

  // Opens a transaction of draft tokens. The sequence stays where it is (is not moved) until it closes.
  // kInvalid: a step or a draft is open. kUnsupported: not ready(), or a recurrent layer whose
  // record_bytes is 0.
  Result<Speculation> Speculate(Sequence& sequence);
  // The same on a fork, which shares the sequence's pages and slot until it writes. The sequence is never
  // touched and may go on or end; the draft is always dropped. Needs no record_bytes.
  Result<Speculation> SpeculateIsolated(const Sequence& sequence);

  // Converts the snapshot's recurrent state to the form of a store (Layout::stored_state), in a slot of its
  // own. Nothing to do where that form is float32, it has it, or there is no state. Errors change nothing:
  // kOutOfSlots; kInvalid: another cache's.
  Result<void> ConvertToStored(Snapshot& snapshot);

  // Builds a snapshot [from, to) on `before`, a snapshot of the same tokens that ends at or behind `from`
  // (empty when from == 0), out of parts that `fill` writes, in the order of Snapshot::ForEachPart. For tiers
  // that kept the bytes. kOutOfPages, kOutOfSlots; kInvalid: the range.
  Result<Snapshot> Import(const Snapshot& before, Position from, Position to,
                          const std::function<void(const Snapshot::Part&)>& fill);

  // The worst-case demand of Begin(); changes nothing. REQUIRES: valid appends.
  Demand Need(std::span<const Append> appends) const;
  // The same demand against what there is now.
  Demand Refreshed(Demand demand) const;
  // Tokens of the longest sequence that fits when it is alone in the cache, appended in batches of at most
  // `batch` tokens.
  Position LargestSequence(int32_t batch) const;

  void set_reclaimer(Reclaimer* reclaimer) { reclaimer_ = reclaimer; }  // null: none; not owned

  // kInvalid: no tokens, a sequence named twice or already in a step. kUnsupported: a sequence is not
  // ready(). kOutOfPages, kOutOfSlots. Several steps may be open at once, on different sequences.
  // Decoding allocates no memory, but where a sequence begins a page.
  Result<OwnedStep> Begin(std::span<const Append> appends);

  // The view of a sequence's next token, without appending anything: new_tokens() is 0, Pages() covers
  // committed tokens only, Slot() is null where there is no state. Read-only: nothing may be written through
  // it. It holds nothing and is right until the sequence next changes. kInvalid: the sequence is in a step.
  // kUnsupported: not ready().
  Result<std::unique_ptr<StepView>> View(Sequence& sequence);

  bool Owns(const Snapshot& snapshot) const;  // an empty one is nobody's

  CacheStats stats() const;
  size_t used_bytes() const;      // as stats() has it
  size_t resident_bytes() const;  // likewise

  // Gives the memory of free pages and slots back to the system.
  void ReleaseFree();

  // Counts every reference again from all that is alive. The message names what is wrong.
  // REQUIRES: no step is open.
  std::expected<void, std::string> CheckInvariants() const;

 private:
  friend class StoreAccounting;
  explicit HybridCache(std::unique_ptr<Pools> pools);
  Result<void> CheckAppends(std::span<const Append> appends) const;

  // Whether the demand fits, after asking the reclaimer where it does not.
  bool MakeRoom(const Demand& demand);
  Demand NoDemand() const;

  std::unique_ptr<Pools> pools_;
  Reclaimer* reclaimer_ = nullptr;
};

}  // namespace quire::cache
