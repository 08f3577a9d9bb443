#include "runner/kernels/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::Random;
using Ints = std::vector<int32_t>;

TEST(Route, ChoosesTheHighestScoresAndWeighsThem) {
  ThreadPool pool(1);
  std::vector<float> scores = {std::log(1.0F), std::log(4.0F), std::log(2.0F), std::log(3.0F)};
  Routing routing;
  Route(pool, {.experts = 4, .chosen = 2, .normalize = false}, scores, &routing);
  EXPECT_EQ(routing.expert, (Ints{1, 3}));
  EXPECT_NEAR(routing.weight[0], 0.4, 1e-6);
  EXPECT_NEAR(routing.weight[1], 0.3, 1e-6);

  scores = {0, 0, 0, 0};
  const std::vector<float> per_expert = {1, 10, 100, 1000};
  Route(pool, {.experts = 4, .chosen = 2, .scale = 3, .per_expert = per_expert}, scores, &routing);
  EXPECT_EQ(routing.expert, (Ints{0, 1})) << "the lower index among equals";
  EXPECT_NEAR(routing.weight[0], 1.5, 1e-6);
  EXPECT_NEAR(routing.weight[1], 15, 1e-5);
}

TEST(Route, ChoosesWhatSortingPutsFirst) {
  ThreadPool pool(1);
  constexpr size_t kExperts = 60;
  Random random(4);
  for (int64_t chosen = 1; chosen <= 12; ++chosen) {
    std::vector<float> logits(kExperts);
    for (float& logit : logits) {
      const uint32_t number = random.Below(20);  // many are equal, some are not numbers
      logit = number == 0 ? std::nanf("") : static_cast<float>(number) / 4 - 2;
    }
    std::vector<int32_t> expected(kExperts);
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, [&](int32_t a, int32_t b) {
      const float first = logits[static_cast<size_t>(a)], second = logits[static_cast<size_t>(b)];
      return first > second || (std::isnan(second) && !std::isnan(first));
    });
    expected.resize(static_cast<size_t>(chosen));
    std::ranges::sort(expected);
    Routing routing;
    Route(pool, {.score = RoutingRule::Score::kSigmoid, .experts = kExperts, .chosen = chosen}, logits,
          &routing);
    EXPECT_EQ(routing.expert, expected) << chosen;
  }
}

TEST(Route, ABiasChoosesButDoesNotWeigh) {
  ThreadPool pool(1);
  std::vector<float> scores = {2, 1, 0};
  const std::vector<float> bias = {0, 0, 5};
  Routing routing;
  Route(pool,
        {.score = RoutingRule::Score::kSigmoid, .experts = 3, .chosen = 1, .bias = bias, .normalize = false},
        scores, &routing);
  EXPECT_EQ(routing.expert, (Ints{2}));
  EXPECT_FLOAT_EQ(routing.weight[0], 0.5F);
}

// Three groups of two: 0.9 + 0.1, 0.6 + 0.5, 0.2 + 0.7 (with its bias).
TEST(Route, ChoosesAmongTheBestGroups) {
  ThreadPool pool(1);
  const auto logit = [](float score) { return std::log(score / (1 - score)); };
  const std::vector<float> logits = {logit(0.9F), logit(0.1F), logit(0.6F),
                                     logit(0.5F), logit(0.2F), logit(0.4F)};
  const std::vector<float> bias = {0, 0, 0, 0, 0, 0.3F};
  RoutingRule rule{.score = RoutingRule::Score::kSigmoid,
                   .experts = 6,
                   .chosen = 2,
                   .bias = bias,
                   .groups = 3,
                   .groups_kept = 1,
                   .group_best = 2,
                   .normalize = false};
  Routing routing;
  const auto chosen = [&] {
    std::vector<float> scores = logits;
    Route(pool, rule, scores, &routing);
    return routing.expert;
  };
  EXPECT_EQ(chosen(), (Ints{2, 3})) << "1.1 is the highest sum of two";
  rule.group_best = 1;
  EXPECT_EQ(chosen(), (Ints{0, 1})) << "0.9 is the highest score";
  rule.groups_kept = 2;
  EXPECT_EQ(chosen(), (Ints{0, 5})) << "0.9 and, with its bias, 0.7";
  EXPECT_NEAR(routing.weight[1], 0.4, 1e-6);
  rule.groups_kept = 3;
  rule.chosen = 3;
  EXPECT_EQ(chosen(), (Ints{0, 2, 5}));
}

// 3, 2.9 and -4: at a jitter of 0.05 the first two share a softmax, and the third is left alone when both are
// gone.
TEST(Route, ASparseMixerWeighsAgainstLogitsCloseBy) {
  ThreadPool pool(1);
  std::vector<float> scores = {-4, 2.9F, 3};
  Routing routing;
  RoutingRule rule{.score = RoutingRule::Score::kSparseMixer, .experts = 3, .chosen = 2, .jitter = 0.05F};
  Route(pool, rule, scores, &routing);
  EXPECT_EQ(routing.expert, (Ints{1, 2}));
  EXPECT_FLOAT_EQ(routing.weight[0], 1.0F);
  EXPECT_NEAR(routing.weight[1], 1 / (1 + std::exp(-0.1)), 1e-6);
  rule.jitter = 0.01F;
  Route(pool, rule, scores, &routing);
  EXPECT_FLOAT_EQ(routing.weight[1], 1.0F);
}

TEST(Route, WeightsMayGoToTheInputs) {
  ThreadPool pool(2);
  std::vector<float> scores = {0, 1, 5, 2, 0, 1, 9, 0, 0};
  Routing routing;
  Route(pool, {.score = RoutingRule::Score::kSigmoid, .experts = 3, .chosen = 1, .normalize = false}, scores,
        &routing);
  const std::vector<float> weight = routing.weight;
  std::vector<float> x(6, 1.0F);
  WeighInputs(pool, 2, x, &routing);
  for (size_t row = 0; row < 3; ++row) {
    const auto place = static_cast<size_t>(routing.place[row]);
    EXPECT_EQ(x[2 * place], weight[row]);
    EXPECT_EQ(x[2 * place + 1], weight[row]);
    EXPECT_EQ(routing.weight[row], 1);
  }
}

TEST(Route, BiasOfAnExpertGoesToItsPlaces) {
  ThreadPool pool(1);
  std::vector<float> scores = {0, 1, 5, 2, 0, 1, 9, 0, 0};
  Routing routing;
  Route(pool, {.experts = 3, .chosen = 1}, scores, &routing);
  EXPECT_EQ(routing.begin, (Ints{0, 2, 2, 3}));
  std::vector<float> x(6, 1.0F);
  AddExpertBias(pool, routing, std::vector<float>{10, 20, 30, 40, 50, 60}, 2, x);
  EXPECT_EQ(x, (std::vector<float>{11, 21, 11, 21, 51, 61}));
}

TEST(Route, TakesTheExpertsThatAreGivenAndWeighsThemByScores) {
  ThreadPool pool(1);
  std::vector<float> scores = {9, 1, 0, -2, 5, 5, 5, 5};
  const Ints given = {3, 1, 0, 2};
  Routing routing;
  Route(pool,
        {.score = RoutingRule::Score::kSqrtSoftplus, .experts = 4, .chosen = 2, .given = given, .scale = 3},
        scores, &routing);
  EXPECT_EQ(routing.expert, (Ints{1, 3, 0, 2}));
  const double first = std::sqrt(std::log1p(std::exp(1.0))), second = std::sqrt(std::log1p(std::exp(-2.0)));
  EXPECT_NEAR(routing.weight[0], 3 * first / (first + second), 1e-6);
  EXPECT_NEAR(routing.weight[1], 3 * second / (first + second), 1e-6);
  EXPECT_NEAR(routing.weight[2], 1.5, 1e-6);
}

TEST(ClampedSwiglu, LimitsGateAndUp) {
  ForEachInstructionSet([] {
    ThreadPool pool(2);
    Random random(8);
    std::vector<float> x = random.Floats(1003), up = random.Floats(x.size());
    for (float& v : x) v *= 12;
    for (float& v : up) v *= 9;
    x[0] = -1000;
    x[1] = 1000;
    std::vector<float> gate = x;
    ClampedSwiglu(pool, {.limit = 7}, up, gate);
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = std::min<double>(x[i], 7), u = std::clamp<double>(up[i], -7, 7);
      const double expected = g / (1 + std::exp(-1.702 * g)) * (u + 1);
      ASSERT_NEAR(gate[i], expected, 4e-6 * std::abs(expected) + 1e-30) << x[i] << " " << up[i];
    }
    gate = x;
    ClampedSwiglu(pool, {.limit = 2, .slope = 1, .shift = 0}, up, gate);
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = std::min<double>(x[i], 2),
                   expected = g / (1 + std::exp(-g)) * std::clamp(up[i], -2.0F, 2.0F);
      ASSERT_NEAR(gate[i], expected, 4e-6 * std::abs(expected) + 1e-30) << x[i] << " " << up[i];
    }
    gate = x;
    ClampedSwiglu(pool, {.limit = 2, .slope = 1, .shift = 0, .late = true}, up, gate);
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = x[i],
                   expected = std::min(g / (1 + std::exp(-g)), 2.0) * std::clamp(up[i], -2.0F, 2.0F);
      ASSERT_NEAR(gate[i], expected, 4e-6 * std::abs(expected) + 1e-30) << x[i] << " " << up[i];
    }
  });
}

TEST(Route, StaysInRangeWhenNothingIsANumber) {
  ThreadPool pool(1);
  std::vector<float> scores(4, std::nanf(""));
  Routing routing;
  Route(pool, {.experts = 4, .chosen = 3}, scores, &routing);
  EXPECT_EQ(routing.expert, (Ints{0, 1, 2}));
}

// A mixture of linear experts, over the rows [begin, end) of x.
std::vector<float> Mix(ThreadPool& pool, const std::vector<float>& x, size_t begin, size_t end) {
  constexpr int64_t kExperts = 5, kChosen = 2, kIn = 24, kOut = 150;
  Random random(21);
  const std::vector<float> weights = random.Floats(kExperts * kIn * kOut),
                           router = random.Floats(kExperts * kIn);
  const std::span<const float> rows = std::span(x).subspan(begin * kIn, (end - begin) * kIn);
  const auto count = static_cast<int64_t>(end - begin);
  std::vector<float> scores(static_cast<size_t>(count * kExperts));
  MatMul(pool, rows, count, {std::as_bytes(std::span(router)).data(), weights::DataType::kF32, kExperts, kIn},
         scores);
  Routing routing;
  Route(pool, {.experts = kExperts, .chosen = kChosen}, scores, &routing);
  std::vector<float> gathered(static_cast<size_t>(count * kChosen * kIn));
  std::vector<float> out(static_cast<size_t>(count * kChosen * kOut)), y(static_cast<size_t>(count * kOut));
  GatherRows(pool, routing, rows, kIn, gathered);
  std::vector<MatMulPart> parts;
  for (size_t e = 0; e < kExperts; ++e) {
    const auto* data = std::as_bytes(std::span(weights).subspan(e * kIn * kOut)).data();
    if (routing.begin[e] < routing.begin[e + 1])
      parts.push_back({{data, weights::DataType::kF32, kOut, kIn}, routing.begin[e], routing.begin[e + 1]});
  }
  QuantizedActivations scratch;
  MatMulParts(pool, {gathered, count * kChosen, scratch, routing.begin}, parts, out);
  CombineRows(pool, routing, kChosen, out, kOut, y);
  // Against the choices and matrices one by one.
  for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
    for (size_t o = 0; o < kOut; o += 13) {
      double expected = 0;
      for (size_t c = r * kChosen; c < (r + 1) * kChosen; ++c) {
        const float* w = weights.data() + (static_cast<size_t>(routing.expert[c]) * kOut + o) * kIn;
        for (size_t i = 0; i < kIn; ++i)
          expected += static_cast<double>(routing.weight[c]) * w[i] * rows[r * kIn + i];
      }
      EXPECT_NEAR(y[r * kOut + o], expected, 1e-5);
    }
  }
  return y;
}

TEST(Experts, ARowDoesNotSeeWhoSharesItsExperts) {
  ThreadPool one(1), three(3);
  ForEachInstructionSet([&] {
    Random random(4);
    const std::vector<float> x = random.Floats(45 * 24);
    const std::vector<float> together = Mix(three, x, 0, 45);
    std::vector<float> apart;
    for (const auto& [begin, end] : {std::pair(0, 1), {1, 8}, {8, 45}}) {
      const std::vector<float> part = Mix(one, x, static_cast<size_t>(begin), static_cast<size_t>(end));
      apart.insert(apart.end(), part.begin(), part.end());
    }
    EXPECT_EQ(together, apart);
  });
}

}  // namespace
}  // namespace quire::runner::kernels
