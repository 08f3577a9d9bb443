#include "runner/models/distance_bias.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runner/kernels/encoder_ops.h"

namespace quire::runner::models {
namespace {

// As torch computes them in float32.
TEST(BiasBucket, HoldsHalfAnOctaveOfDistances) {
  constexpr std::pair<int32_t, int32_t> kBuckets[] = {
      {0, 0},   {1, 1},   {7, 7},   {8, 8},   {11, 8},  {12, 9},  {15, 9},  {16, 10}, {22, 10},  {23, 11},
      {31, 11}, {32, 12}, {45, 12}, {46, 13}, {63, 13}, {64, 14}, {90, 14}, {91, 15}, {128, 15}, {5000, 15},
  };
  for (const auto& [distance, bucket] : kBuckets) {
    EXPECT_EQ(BiasBucket(-distance), bucket) << distance;
    if (distance == 0) continue;
    EXPECT_EQ(BiasBucket(distance), bucket + 16) << distance;
  }
}

TEST(SpreadBiases, HasARowForEachHead) {
  constexpr int32_t kHeads = 3;
  std::vector<float> table;
  for (int32_t i = 0; i < kBiasBuckets * kHeads; ++i) table.push_back(static_cast<float>(i));
  const std::vector<float> biases = SpreadBiases(table, kHeads);
  constexpr auto kRow = static_cast<size_t>(2 * kernels::kBiasReach + 1), kMiddle = kRow / 2;
  ASSERT_EQ(biases.size(), kHeads * kRow);
  EXPECT_EQ(biases[kMiddle], 0);
  EXPECT_EQ(biases[kRow + kMiddle - 1], 1 * kHeads + 1);  // the key before the query, head 1
  EXPECT_EQ(biases[2 * kRow + kMiddle + 1], 17 * kHeads + 2);
  EXPECT_EQ(biases.back(), 31 * kHeads + 2);
  EXPECT_EQ(biases.front(), 15 * kHeads);
}

}  // namespace
}  // namespace quire::runner::models
