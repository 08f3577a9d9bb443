#include "runner/engine/shares/slice_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace quire::runner::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Slices of texts of `keys` rows, where a row takes 20 us and 1 us more for each 20 keys. The longest one.
milliseconds LongestSlice(SliceBudget& budget, int32_t keys) {
  milliseconds longest{};
  for (int i = 0; i < 40; ++i) {
    const int64_t rows = budget.Rows(keys);
    const microseconds took(rows * (20 + keys / 20));
    budget.Observe(keys, rows, took);
    longest = std::max(longest, std::chrono::duration_cast<milliseconds>(took));
  }
  return longest;
}

TEST(SliceBudget, KeepsToItsTimeWhateverTheLength) {
  for (const int32_t keys : {10, 500, 8192, 32'768}) {
    SliceBudget budget;
    EXPECT_LE(LongestSlice(budget, keys), milliseconds(110)) << keys;
  }
}

TEST(SliceBudget, TakesAllRowsWhereTheyAreCheap) {
  SliceBudget budget;
  EXPECT_EQ(budget.Rows(100), 64);
  EXPECT_LE(LongestSlice(budget, 100), milliseconds(100));
  EXPECT_EQ(budget.Rows(100), 512);
  EXPECT_EQ(budget.rows_max(), 512);
}

TEST(SliceBudget, ALengthThatIsNewIsTakenForAsDearAsItMayBe) {
  SliceBudget budget;
  LongestSlice(budget, 512);
  budget.Observe(512, 512, milliseconds(90));
  EXPECT_LE(LongestSlice(budget, 16'384), milliseconds(110));
}

TEST(SliceBudget, WhatHasNoRowsSaysNothing) {
  SliceBudget budget;
  budget.Observe(0, 0, std::chrono::seconds(3));
  EXPECT_EQ(budget.Rows(0), 64);
  LongestSlice(budget, 0);
  EXPECT_EQ(budget.Rows(0), 512);
}

TEST(SliceBudget, ASlowerMachineGetsShorterSlicesAtOnce) {
  SliceBudget budget;
  LongestSlice(budget, 100);
  budget.Observe(100, 512, milliseconds(512));
  EXPECT_LE(budget.Rows(100), 192);
}

}  // namespace
}  // namespace quire::runner::engine
