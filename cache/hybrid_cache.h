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
// name capacity, used and demand. Any error leaves every sequence as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/layout.h"
#include "cache/sequence.h"
#include "cache/types.h"
#include "cache/write.h"

namespace quire::cache {

struct Pools;

// What a cache may hold. Address space is reserved at once; memory is taken as it is used and, when one pool
// needs what another has freed, given back in between.
struct Capacity {
  size_t bytes = 0;                 // of all pages and slots together; 0 = bounded by the counts only
  std::vector<int32_t> pages = {};  // per attention group; empty = as many as `bytes` holds
  int32_t slots = 0;                // 0 = as many as `bytes` holds
};

struct Append {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;  // > 0
};

// What a batch would take in the worst case, beside what there is.
struct Demand {
  struct Kind {
    int64_t need = 0;
    int64_t used = 0;
    int64_t capacity = 0;
    size_t block_bytes = 0;
  };
  std::vector<Kind> pages;  // [attention groups]
  Kind slots;
  size_t bytes_left = 0;  // of the common budget

  bool fits() const;
};

struct CacheStats {
  size_t capacity_bytes = 0;
  size_t used_bytes = 0;      // pages and slots that someone holds, each once
  size_t resident_bytes = 0;  // and those freed but not yet given back
  std::vector<int64_t> pages_used;
  int64_t slots_used = 0;
  uint64_t bytes_copied = 0;  // by copy on write, since the start
};

// One forward pass. Destroyed without Commit() it is cancelled: offsets, KV and windows are as before; a
// sequence whose Slot() was taken has lost its recurrent state (ready() is false) unless it was at offset 0.
class Step : public StepView {
 public:
  // Moves every sequence's offset by its token count. REQUIRES: called at most once.
  virtual void Commit() = 0;
};

class HybridCache {
 public:
  // kInvalid names the layout's or the capacity's bad field; kOutOfPages when address space cannot be
  // reserved.
  static Result<std::unique_ptr<HybridCache>> Create(Layout layout, Capacity capacity);
  ~HybridCache();  // REQUIRES: no handle is left

  const Layout& layout() const;

  // At offset 0 with zero recurrent state; holds nothing yet.
  Sequence NewSequence();

  // A sequence of the first `position` tokens. Layers that cannot follow leave it not ready(): recurrent
  // state unless `position` is the source's offset (then the slot is shared) or 0; a window unless it has not
  // slid since. kInvalid: position outside [0, offset].
  Result<Sequence> Fork(const Sequence& source, Position position);

  // Rewinds to `position`. kUnsupported when some layer cannot: recurrent state unless already there or 0, a
  // window that has slid. kInvalid: position outside [0, offset], or a step is open.
  Result<void> Truncate(Sequence& sequence, Position position);

  // What Begin() would need at most; touches nothing. REQUIRES: valid appends.
  Demand Need(std::span<const Append> appends) const;

  // kInvalid: no tokens, a sequence named twice or already in a step. kUnsupported: a sequence is not
  // ready(). kOutOfPages, kOutOfSlots. Several steps may be open at once, on different sequences.
  Result<std::unique_ptr<Step>> Begin(std::span<const Append> appends);

  // What a sequence's next token would see, without appending anything: new_tokens() is 0, Pages() covers
  // committed tokens only, Slot() is null where there is no state. Read-only: nothing may be written through
  // it. It holds nothing and is right until the sequence next changes. kInvalid: the sequence is in a step.
  // kUnsupported: not ready().
  Result<std::unique_ptr<StepView>> View(Sequence& sequence);

  CacheStats stats() const;

  // Gives the memory of free pages and slots back to the system.
  void ReleaseFree();

  // Counts every reference again from all that is alive. The message names what is wrong.
  std::expected<void, std::string> CheckInvariants() const;

 private:
  explicit HybridCache(std::unique_ptr<Pools> pools);
  Result<void> CheckAppends(std::span<const Append> appends) const;

  std::unique_ptr<Pools> pools_;
};

}  // namespace quire::cache
