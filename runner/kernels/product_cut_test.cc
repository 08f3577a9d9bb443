#include "runner/kernels/product_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire::runner::kernels {
namespace {

TEST(ProductCut, TasksCoverEveryElementOnce) {
  for (const int threads : {1, 2, 7, 64, 192}) {
    for (const size_t outs : {1, 3, 64, 65}) {
      for (const size_t per_task : {1, 8, 64}) {
        for (const size_t rows : {1, 5, 32, 33}) {
          const ProductCut cut({.outs = outs, .outs_per_task = per_task, .rows = rows, .least_rows = 4},
                               threads);
          std::vector<int> seen(outs * rows);
          for (size_t task = 0; task < cut.tasks(); ++task) {
            ASSERT_GE(cut.rows(task).end - cut.rows(task).begin, std::min<size_t>(rows, 4));
            for (size_t out = cut.outs(task).begin; out < cut.outs(task).end; ++out) {
              for (size_t row = cut.rows(task).begin; row < cut.rows(task).end; ++row)
                ++seen[out * rows + row];
            }
          }
          ASSERT_EQ(seen, std::vector<int>(outs * rows, 1))
              << threads << ' ' << outs << ' ' << per_task << ' ' << rows;
        }
      }
    }
  }
}

// 1,024 outputs in panels of 16 and 512 rows in groups of 16.
TEST(ProductCut, ManyThreadsGetTwoTasksEachWhereRowsAreMany) {
  for (const int threads : {64, 96, 192}) {
    const ProductCut cut({.outs = 64, .outs_per_task = 1, .rows = 32, .least_rows = 4}, threads);
    EXPECT_GE(cut.tasks(), 2 * static_cast<size_t>(threads)) << threads;
  }
}

TEST(ProductCut, FewRowsAreNotCut) {
  const ProductCut cut({.outs = 64, .outs_per_task = 1, .rows = 7, .least_rows = 4}, 192);
  EXPECT_EQ(cut.tasks(), 64u);
  EXPECT_EQ(cut.rows(63), (CutRange{0, 7}));
}

TEST(ProductCut, OutputsAloneAreCutWhereTheyAreEnough) {
  const ProductCut cut({.outs = 256, .outs_per_task = 16, .rows = 32, .least_rows = 4}, 4);
  EXPECT_EQ(cut.tasks(), 16u);
  EXPECT_EQ(cut.outs(1), (CutRange{16, 32}));
  EXPECT_EQ(cut.rows(1), (CutRange{0, 32}));
}

TEST(ProductCut, NothingIsNoTask) {
  EXPECT_EQ(ProductCut({.outs = 0, .outs_per_task = 1, .rows = 5}, 8).tasks(), 0u);
  EXPECT_EQ(ProductCut({.outs = 5, .outs_per_task = 1, .rows = 0}, 8).tasks(), 0u);
}

}  // namespace
}  // namespace quire::runner::kernels
