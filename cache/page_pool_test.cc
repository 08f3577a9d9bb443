#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cache/slot_pool.h"

namespace quire::cache {
namespace {

std::unique_ptr<BlockPool> MakePool(MemoryBudget* budget, size_t bytes, uint32_t blocks) {
  auto pool = BlockPool::Create("test", bytes, blocks, budget);
  EXPECT_TRUE(pool.has_value());
  return std::move(*pool);
}

TEST(BlockPool, CountsReferencesAndReusesFreedBlocks) {
  MemoryBudget budget(1 << 20);
  auto pool = MakePool(&budget, 128, 4);
  const BlockId a = pool->Allocate();
  const BlockId b = pool->Allocate();
  EXPECT_NE(a, b);
  EXPECT_NE(pool->data(a), pool->data(b));
  pool->AddReference(a);
  pool->Release(a);
  EXPECT_EQ(pool->used(), 2u);
  pool->Release(a);
  EXPECT_EQ(pool->used(), 1u);
  EXPECT_EQ(budget.used(), 128u);
  EXPECT_EQ(pool->Allocate(), a);
  EXPECT_TRUE(pool->CheckInvariants({1, 1}).has_value());
  EXPECT_FALSE(pool->CheckInvariants({1, 2}).has_value());
  pool->Release(a);
  pool->Release(b);
}

// Any history of allocations and frees leaves every block usable: nothing is ever stranded.
TEST(BlockPool, EveryBlockIsUsableAfterAnyHistory) {
  MemoryBudget budget(64 * 100);
  auto pool = MakePool(&budget, 64, 1000);
  std::mt19937 random(7);
  std::vector<BlockId> held;
  for (int round = 0; round < 200; ++round) {
    while (pool->available() > 0) held.push_back(pool->Allocate());
    EXPECT_EQ(held.size(), 100u);
    EXPECT_EQ(pool->Allocate(), kNoBlock);
    std::shuffle(held.begin(), held.end(), random);
    for (size_t n = random() % 101; n > 0; --n) {
      pool->Release(held.back());
      held.pop_back();
    }
  }
  for (const BlockId block : held) pool->Release(block);
}

// Blocks of one size freed make room for blocks of another: the byte budget is one for all pools.
TEST(MemoryBudget, BytesFreedByOnePoolServeAnother) {
  constexpr size_t kSmall = 64 << 10;
  constexpr size_t kLarge = 256 << 10;
  MemoryBudget budget(16 * kLarge);
  auto small = MakePool(&budget, kSmall, 1000);
  auto large = MakePool(&budget, kLarge, 1000);
  for (int round = 0; round < 3; ++round) {
    std::vector<BlockId> held;
    for (int i = 0; i < 64; ++i) held.push_back(small->Allocate());
    EXPECT_EQ(small->Allocate(), kNoBlock);
    EXPECT_EQ(large->available(), 0u);
    EXPECT_EQ(budget.resident(), budget.capacity());
    for (const BlockId block : held) small->Release(block);
    held.clear();
    for (int i = 0; i < 16; ++i) {
      held.push_back(large->Allocate());
      ASSERT_NE(held.back(), kNoBlock);
      EXPECT_LE(budget.resident(), budget.capacity());
    }
    for (const BlockId block : held) large->Release(block);
  }
  small->ReleaseFree();
  large->ReleaseFree();
  EXPECT_EQ(budget.resident(), 0u);
}

TEST(SlotPool, SlotsAreZeroAtFirstUseAndWhenRecycled) {
  MemoryBudget budget(1 << 20);
  auto pool = SlotPool::Create(256, 2, &budget);
  ASSERT_TRUE(pool.has_value());
  for (int round = 0; round < 3; ++round) {
    SlotRef slot = (*pool)->AllocateZero();
    EXPECT_TRUE(std::all_of(slot.data(), slot.data() + 256, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(slot.data(), 256, std::byte{0x5a});
  }
}

#ifndef NDEBUG
TEST(SlotPool, DebugBuildsPoisonFreeSlots) {
  MemoryBudget budget(1 << 20);
  auto pool = SlotPool::Create(256, 2, &budget);
  ASSERT_TRUE(pool.has_value());
  SlotRef slot = (*pool)->AllocateZero();
  const std::byte* data = slot.data();
  slot = SlotRef();
  EXPECT_TRUE(std::all_of(data, data + 256, [](std::byte b) { return b != std::byte{0}; }));
}
#endif

TEST(SlotPool, RemappingADestinationReleasesWhatItHeld) {
  MemoryBudget budget(1 << 20);
  auto pool = SlotPool::Create(64, 2, &budget);
  ASSERT_TRUE(pool.has_value());
  SlotRef a = (*pool)->AllocateZero();
  SlotRef b = (*pool)->AllocateCopy(a);
  EXPECT_FALSE((*pool)->AllocateZero());
  EXPECT_EQ((*pool)->blocks().used(), 2u);
  b = a;
  EXPECT_EQ((*pool)->blocks().used(), 1u);
  EXPECT_FALSE(a.exclusive());
  b = SlotRef();
  EXPECT_TRUE(a.exclusive());
}

}  // namespace
}  // namespace quire::cache
