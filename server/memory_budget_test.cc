#include "server/memory_budget.h"

#include <gtest/gtest.h>

#include "server/limits_of_options.h"

namespace quire::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(BudgetOf, WhatIsAskedHoldsAsItIs) {
  const MemoryBudget budget = BudgetOf(1000, {.bytes = 5, .from = "the machine"});
  EXPECT_EQ(budget.bytes, 1000);
  EXPECT_EQ(budget.from, "QUIRE_MEMORY");
  EXPECT_EQ(budget.reserve_bytes, 1);
}

TEST(BudgetOf, LeavesAReserve) {
  EXPECT_EQ(BudgetOf(0, {.bytes = 16384 * kMiB, .from = "the machine"}).bytes, 14336 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 16384 * kMiB, .from = "memory.max"}).bytes, 15360 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 2048 * kMiB, .from = "memory.max"}).bytes, 1792 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 512 * kMiB, .from = "memory.max"}).bytes, 384 * kMiB);
  EXPECT_EQ(BudgetOf(0, {.bytes = 512 * kMiB, .from = "memory.max"}).from, "memory.max");
  EXPECT_EQ(BudgetOf(0, {.bytes = 2048 * kMiB, .from = "memory.max"}).reserve_bytes, 256 * kMiB);
}

// A small machine's daemon would otherwise take 1.5 GiB for what clients send and do not read.
TEST(TransportLimitsOf, BodiesAndAnswersFitIntoTheReserve) {
  const TransportLimits usual;
  for (const int64_t reserve : {int64_t{0}, 4096 * kMiB, 65536 * kMiB}) {
    const TransportLimits limits = TransportLimitsOf({}, reserve);
    EXPECT_EQ(limits.buffered_bodies_bytes, usual.buffered_bodies_bytes) << reserve;
    EXPECT_EQ(limits.answers_bytes, usual.answers_bytes) << reserve;
    EXPECT_EQ(limits.answer_bytes_max, usual.answer_bytes_max) << reserve;
    EXPECT_EQ(limits.parser.body_bytes, usual.parser.body_bytes) << reserve;
  }
  const TransportLimits small = TransportLimitsOf({}, 256 * kMiB);
  EXPECT_EQ(small.buffered_bodies_bytes, 96 * kMiB);
  EXPECT_EQ(small.answers_bytes, 64 * kMiB);
  EXPECT_EQ(small.answer_bytes_max, 32 * kMiB);
  EXPECT_EQ(small.parser.body_bytes, 32 * kMiB);
  EXPECT_GE(small.Bodies().party, 2 * small.parser.body_bytes) << "one of the largest size, and its value";
  Options asked;
  asked.max_body_bytes = uint64_t{100} << 20;
  const TransportLimits tiny = TransportLimitsOf(asked, kMiB);
  EXPECT_EQ(tiny.parser.body_bytes, asked.max_body_bytes);
  EXPECT_GE(tiny.Bodies().large, asked.max_body_bytes) << "one of the largest size";
}

TEST(BudgetOf, BoundsNothingWhereNothingIsKnown) {
  EXPECT_EQ(BudgetOf(0, {}).bytes, 0);
  EXPECT_EQ(BudgetOf(1000, {}).reserve_bytes, 0);
}

}  // namespace
}  // namespace quire::server
