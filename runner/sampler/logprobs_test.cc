#include "runner/sampler/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire::runner::sampler {
namespace {

// log of 1/8, 1/2, 1/4, 1/16, 1/16, all shifted by the same amount
std::vector<float> Logits(float shift) {
  std::vector<float> logits;
  for (const float p : {0.125F, 0.5F, 0.25F, 0.0625F, 0.0625F}) logits.push_back(std::log(p) + shift);
  return logits;
}

TEST(Logprobs, ChosenAndBest) {
  for (const float shift : {0.0F, 7.5F, -30.0F}) {
    const auto result = ComputeLogprobs(Logits(shift), 0, 3);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->chosen.id, 0);
    EXPECT_NEAR(result->chosen.logprob, -2.0794415, 3e-6);  // ln 1/8
    ASSERT_EQ(result->top.size(), 3U);
    EXPECT_EQ(result->top[0].id, 1);
    EXPECT_NEAR(result->top[0].logprob, -0.6931472, 3e-6);
    EXPECT_EQ(result->top[1].id, 2);
    EXPECT_EQ(result->top[2].id, 0);
    EXPECT_EQ(result->top[2].logprob, result->chosen.logprob);
    EXPECT_EQ(result->rank, 3);
  }
}

TEST(Logprobs, TiesByIdAndNoMoreThanThereAre) {
  const auto result = ComputeLogprobs(std::vector<float>{1, 2, 2, 1}, 3, 20);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->top.size(), 4U);
  EXPECT_EQ(result->top[0].id, 1);
  EXPECT_EQ(result->top[1].id, 2);
  EXPECT_EQ(result->top[2].id, 0);
  EXPECT_EQ(result->top[3].id, 3);
  EXPECT_EQ(result->rank, 4);
  EXPECT_TRUE(ComputeLogprobs(std::vector<float>{1, 2}, 0, 0)->top.empty());
}

// A float32 sum of 200,000 equal terms would be off in the fourth digit.
TEST(Logprobs, SumInFloat64) {
  const auto result = ComputeLogprobs(std::vector<float>(200'000, 0.1F), 5, 0);
  ASSERT_TRUE(result);
  EXPECT_FLOAT_EQ(result->chosen.logprob, -12.206073F);
}

TEST(Logprobs, ImpossibleTokens) {
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  const auto result = ComputeLogprobs(std::vector<float>{minus_infinity, 3}, 0, 5);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->chosen.logprob, minus_infinity);
  ASSERT_EQ(result->top.size(), 1U);
  EXPECT_EQ(result->top[0].logprob, 0);
}

TEST(Logprobs, Errors) {
  EXPECT_FALSE(ComputeLogprobs(std::vector<float>{1, std::nanf("")}, 0, 1));
  EXPECT_FALSE(ComputeLogprobs(std::vector<float>{}, 0, 1));
  EXPECT_FALSE(ComputeLogprobs(std::vector<float>{1}, 1, 1));
  EXPECT_FALSE(ComputeLogprobs(std::vector<float>{1}, -1, 1));
}

}  // namespace
}  // namespace quire::runner::sampler
