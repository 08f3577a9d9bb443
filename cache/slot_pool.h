// State slots: the recurrent state of one sequence over all recurrent layers.
//
// Invariants: a slot is zero when it is first handed out and when it is handed out again; a slot with more
// than one reference is never written. Engine thread only; compute threads may use the bytes of a slot that a
// step gave them.
#pragma once

#include <cstddef>
#include <memory>

#include "cache/page_pool.h"

namespace quire::cache {

// One reference to a slot, or none.
class SlotRef {
 public:
  SlotRef() = default;
  SlotRef(BlockPool* pool, BlockId owned) : pool_(pool), slot_(owned) {}  // takes over one reference
  SlotRef(const SlotRef& other);
  SlotRef(SlotRef&& other) noexcept;
  SlotRef& operator=(SlotRef other) noexcept;
  ~SlotRef();

  explicit operator bool() const { return slot_ != kNoBlock; }
  bool exclusive() const { return pool_->references(slot_) == 1; }  // REQUIRES: holds one
  BlockId id() const { return slot_; }
  const BlockPool* pool() const { return pool_; }
  size_t bytes() const { return pool_->block_bytes(); }   // REQUIRES: holds one
  std::byte* data() const { return pool_->data(slot_); }  // REQUIRES: holds one

 private:
  BlockPool* pool_ = nullptr;
  BlockId slot_ = kNoBlock;
};

class SlotPool {
 public:
  static Result<std::unique_ptr<SlotPool>> Create(size_t slot_bytes, uint32_t slots, MemoryBudget* budget);

  BlockPool& blocks() { return *blocks_; }
  const BlockPool& blocks() const { return *blocks_; }

  // Empty when none is available.
  SlotRef AllocateZero();
  SlotRef AllocateCopy(const SlotRef& source);  // REQUIRES: source holds a slot

 private:
  explicit SlotPool(std::unique_ptr<BlockPool> blocks) : blocks_(std::move(blocks)) {}
  std::unique_ptr<BlockPool> blocks_;
};

}  // namespace quire::cache
