#include "cache/slot_pool.h"

#include <cstring>
#include <utility>

namespace quire::cache {

SlotRef::SlotRef(const SlotRef& other) : pool_(other.pool_), slot_(other.slot_) {
  if (slot_ != kNoBlock) pool_->AddReference(slot_);
}

SlotRef::SlotRef(SlotRef&& other) noexcept
    : pool_(other.pool_), slot_(std::exchange(other.slot_, kNoBlock)) {}

SlotRef& SlotRef::operator=(SlotRef other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(slot_, other.slot_);
  return *this;
}

SlotRef::~SlotRef() {
  if (slot_ != kNoBlock) pool_->Release(slot_);
}

Result<std::unique_ptr<SlotPool>> SlotPool::Create(size_t slot_bytes, uint32_t slots, MemoryBudget* budget) {
  auto blocks = BlockPool::Create("state slots", slot_bytes, slots, budget);
  if (!blocks) return std::unexpected(std::move(blocks.error()));
  return std::unique_ptr<SlotPool>(new SlotPool(std::move(*blocks)));
}

SlotRef SlotPool::AllocateZero() {
  const BlockId slot = blocks_->Allocate();
  if (slot == kNoBlock) return {};
  std::memset(blocks_->data(slot), 0, blocks_->block_bytes());
  return SlotRef(blocks_.get(), slot);
}

SlotRef SlotPool::AllocateCopy(const SlotRef& source) {
  const BlockId slot = blocks_->Allocate();
  if (slot == kNoBlock) return {};
  std::memcpy(blocks_->data(slot), source.data(), blocks_->block_bytes());
  return SlotRef(blocks_.get(), slot);
}

}  // namespace quire::cache
