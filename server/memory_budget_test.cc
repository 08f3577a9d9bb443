#include "server/memory_budget.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(BudgetOf, WhatIsAskedHoldsAsItIs) {
  const MemoryBudget budget = BudgetOf(1000, {.bytes = 5, .from = "the machine"});
  EXPECT_EQ(budget.bytes, 1000);
  EXPECT_EQ(budget.from, "QUIRE_MEMORY");
}

TEST(BudgetOf, LeavesAReserve) {
  EXPECT_EQ(BudgetOf(0, {.bytes = 16384 * kMiB, .from = "the machine"}).bytes, 14336 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 16384 * kMiB, .from = "memory.max"}).bytes, 15360 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 2048 * kMiB, .from = "memory.max"}).bytes, 1792 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 512 * kMiB, .from = "memory.max"}).bytes, 384 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 512 * kMiB, .from = "memory.max"}).from, "memory.max");
}

TEST(BudgetOf, BoundsNothingWhereNothingIsKnown) { EXPECT_EQ(BudgetOf(0, {}).bytes, 0); }

}  // namespace
}  // namespace quire::server
