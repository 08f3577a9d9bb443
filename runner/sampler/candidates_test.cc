#include "runner/sampler/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace quire::runner::sampler {

bool operator==(const Candidate& a, const Candidate& b) { return a.id == b.id && a.logit == b.logit; }

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Few distinct values, so that ties are everywhere; some tokens impossible.
std::vector<float> RandomLogits(std::mt19937& random, size_t size) {
  std::vector<float> logits(size);
  for (float& logit : logits) {
    logit = random() % 8 == 0 ? -kInf : static_cast<float>(random() % 50) - 25.0F;
  }
  return logits;
}

api::Result<float> Maximum(const std::vector<float>& logits) {
  Maxima maxima;
  return CheckedMaximum(logits, maxima);
}

std::vector<Candidate> Best(const std::vector<float>& logits, size_t count) {
  Maxima maxima;
  std::vector<Candidate> best;
  std::vector<Candidate> spare;
  if (CheckedMaximum(logits, maxima)) SelectBest(logits, count, maxima, best, spare);
  return best;
}

std::vector<Candidate> Sorted(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -kInf) all.push_back({static_cast<TokenId>(id), logits[id]});
  }
  std::sort(all.begin(), all.end(), Better);
  return all;
}

TEST(Candidates, SelectBestIsTheBeginningOfTheSortedList) {
  std::mt19937 random(1);
  for (const size_t size : {1U, 2U, 10U, 63U, 64U, 65U, 300U, 5000U, 20000U}) {
    for (const size_t count : {1U, 2U, 40U, 299U, 300U, 6000U}) {
      const auto logits = RandomLogits(random, size);
      auto expected = Sorted(logits);
      expected.resize(std::min(expected.size(), count));
      EXPECT_EQ(Best(logits, count), expected) << size << " " << count;
    }
  }
}

TEST(Candidates, SelectBestOfARisingListReplacesAll) {
  std::vector<float> logits(100'000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  EXPECT_EQ(Best(logits, 3),
            (std::vector<Candidate>{{99'999, 99'999.0F}, {99'998, 99'998.0F}, {99'997, 99'997.0F}}));
}

// The memory that it takes does not grow with them.
TEST(Candidates, SelectBestOfEqualLogitsIsTheLowestIds) {
  std::vector<Candidate> expected;
  for (TokenId id = 0; id < 40; ++id) expected.push_back({id, 1.5F});
  const auto best = Best(std::vector<float>(100'000, 1.5F), 40);
  EXPECT_EQ(best, expected);
  EXPECT_LT(best.capacity(), 1000U);
}

TEST(Candidates, PartlySortedGivesTheWholeOrder) {
  std::mt19937 random(2);
  const auto logits = RandomLogits(random, 5000);
  const auto expected = Sorted(logits);
  auto shuffled = expected;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  std::vector<Candidate> spare;
  PartlySorted order(shuffled, 0, spare);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(order.At(i), expected[i]) << i;
}

TEST(Candidates, FirstOfTheHighest) {
  EXPECT_EQ(FirstOf(std::vector<float>{1, 3, 2, 3}, 3), 1);
  EXPECT_EQ(FirstOf(std::vector<float>{0.0F, -0.0F}, -0.0F), 0);
}

TEST(Candidates, MaximumAtEveryPlace) {
  for (const size_t size : {1U, 15U, 16U, 17U, 33U, 64U}) {
    for (size_t place = 0; place < size; ++place) {
      std::vector<float> logits(size, -7.0F);
      logits[place] = -3.0F;
      EXPECT_EQ(Maximum(logits).value(), -3.0F);
      logits[place] = std::nanf("");
      EXPECT_FALSE(Maximum(logits));
      logits[place] = kInf;
      EXPECT_FALSE(Maximum(logits));
    }
  }
}

TEST(Candidates, LogitsThatAreNoNumbersAreErrors) {
  const float nan = std::nanf("");
  EXPECT_EQ(Maximum(std::vector<float>{1, -kInf, 2}), 2.0F);
  for (const std::vector<float>& logits : {std::vector<float>{1, nan, 2}, {nan}, {1, kInf}, {-kInf}, {}}) {
    const auto maximum = Maximum(logits);
    ASSERT_FALSE(maximum);
    EXPECT_EQ(maximum.error().code, api::ErrorCode::kInternal);
  }
  EXPECT_EQ(Maximum(std::vector<float>{1, nan}).error().message, "the logit of token 1 is nan");
}

}  // namespace
}  // namespace quire::runner::sampler
