#include "runner/sampler/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace quire::runner::sampler {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Only the temperature on; every filter and penalty off.
api::GenerationParams Plain(float temperature = 1) {
  api::GenerationParams params;
  params.temperature = temperature;
  params.top_k = 0;
  params.top_p = 1;
  params.seed = 42;
  return params;
}

std::vector<float> Logs(const std::vector<float>& probabilities) {
  std::vector<float> logits;
  for (const float p : probabilities) logits.push_back(std::log(p));
  return logits;
}

// ids 0..4 with 1/2, 1/4, 1/8, 1/16, 1/16
const std::vector<float> kHalves = Logs({0.5F, 0.25F, 0.125F, 0.0625F, 0.0625F});

TokenId SampleOne(const api::GenerationParams& params, const std::vector<float>& logits,
                  const std::vector<TokenId>& history = {}) {
  Sampler sampler(params);
  Workspace workspace;
  const auto token = sampler.Sample(logits, history, workspace);
  EXPECT_TRUE(token);
  return token.value_or(-1);
}

std::set<TokenId> Seen(const api::GenerationParams& params, const std::vector<float>& logits) {
  Sampler sampler(params);
  Workspace workspace;
  std::set<TokenId> seen;
  for (int i = 0; i < 2000; ++i) seen.insert(sampler.Sample(logits, {}, workspace).value());
  return seen;
}

// Computed apart from this code, from the formula in the header.
TEST(RandomStream, IsTheDocumentedOne) {
  const auto three = [](uint64_t seed) {
    RandomStream stream{.seed = seed};
    const double a = stream.Next();
    const double b = stream.Next();
    return std::vector<double>{a, b, stream.Next()};
  };
  EXPECT_THAT(three(0), ElementsAre(0.8833108082136426, 0.43152799704850997, 0.026433771592597743));
  EXPECT_THAT(three(42), ElementsAre(0.5961188718302076, 0.1603653875985772, 0.16639780398145976));
  EXPECT_THAT(three(INT64_MAX), ElementsAre(0.5572490742492745, 0.6693562358305625, 0.027941664985400294));
}

TEST(RandomStream, NegativeSeedsDiffer) {
  EXPECT_EQ(StartStream(7).seed, 7U);
  EXPECT_NE(StartStream(-1).seed, StartStream(-1).seed);
}

TEST(Sampler, GreedyTakesTheFirstOfTheHighest) {
  EXPECT_EQ(SampleOne(Plain(0), {1, 3, 3, 2}), 1);
  EXPECT_EQ(SampleOne(Plain(-1), {-kInfinity, -9}), 1);
  EXPECT_EQ(SampleOne(Plain(std::nanf("")), {1, 3, 3, 2}), 1);
  auto one = Plain(1);
  one.top_k = 1;
  EXPECT_EQ(Seen(one, {1, 3, 3, 2}), (std::set<TokenId>{1}));
}

// The numbers of the stream against the cumulated probabilities 1/2, 3/4, 7/8, 15/16.
TEST(Sampler, DrawsByTheCumulatedProbabilities) {
  Sampler sampler(Plain());
  Workspace workspace;
  RandomStream stream{.seed = 42};
  for (int i = 0; i < 2000; ++i) {
    const double u = stream.Next();
    const TokenId expected = u < 0.5 ? 0 : u < 0.75 ? 1 : u < 0.875 ? 2 : u < 0.9375 ? 3 : 4;
    ASSERT_EQ(sampler.Sample(kHalves, {}, workspace), expected) << u;
  }
}

// At temperature 1/2 probabilities are squared: 1/4, 1/16, 1/64, 2 of 1/256 of a total of 86/256.
TEST(Sampler, TemperatureSharpens) {
  Sampler sampler(Plain(0.5F));
  Workspace workspace;
  RandomStream stream{.seed = 42};
  for (int i = 0; i < 2000; ++i) {
    const double u = stream.Next() * 86;
    const TokenId expected = u < 64 ? 0 : u < 80 ? 1 : u < 84 ? 2 : u < 85 ? 3 : 4;
    ASSERT_EQ(sampler.Sample(kHalves, {}, workspace), expected) << u;
  }
}

TEST(Sampler, ExtremeTemperatures) {
  EXPECT_EQ(Seen(Plain(1e-38F), kHalves), (std::set<TokenId>{0}));
  EXPECT_EQ(Seen(Plain(kInfinity), kHalves), (std::set<TokenId>{0, 1, 2, 3, 4}));
}

TEST(Sampler, TopKKeepsTheBest) {
  auto params = Plain(1000);
  params.top_k = 2;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1}));
  params.top_k = 4;  // of the two last the lower id
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1, 2, 3}));
  params.top_k = 100;
  EXPECT_EQ(Seen(params, kHalves).size(), 5U);
  params.top_k = -1;
  EXPECT_EQ(Seen(params, kHalves).size(), 5U);
}

TEST(Sampler, TopPKeepsTheFewestThatMakeItUp) {
  auto params = Plain(1000);  // filters come before the temperature
  params.top_p = 0.74F;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1}));
  params.top_p = 0.76F;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1, 2}));
  params.top_p = 0;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0}));
  params.top_p = 0.7F;  // of the two that top_k leaves, 0 has 2/3
  params.top_k = 2;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1}));
  params.top_p = 0.6F;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0}));
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  auto params = Plain(1000);
  params.min_p = 0.3F;  // at least 0.15
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1}));
  params.min_p = 0.2F;  // at least 0.1
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1, 2}));
  params.min_p = 1;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0}));
  params.min_p = 5;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0}));
}

// Entropy 1.875 bits; the information of the tokens is 1, 2, 3, 4, 4 bits: nearest is token 1, then 0,
// then 2.
TEST(Sampler, TypicalPKeepsWhatIsNearestToTheEntropy) {
  auto params = Plain(1000);
  params.typical_p = 0.2F;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{1}));
  params.typical_p = 0.5F;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1}));
  params.typical_p = 0.8F;
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{0, 1, 2}));
  params.typical_p = 0.2F;
  params.min_p = 0.9F;  // relative to the best of what is left
  EXPECT_EQ(Seen(params, kHalves), (std::set<TokenId>{1}));
}

// Token 0 seen once, 1 twice, 3 once, 2 never; repeat 2, presence 0.5, frequency 0.25:
// 2 / 2 - 0.75 = 0.25, -1 * 2 - 1 = -3, x, 3 / 2 - 0.75 = 0.75
TEST(Sampler, PenaltiesByHand) {
  auto params = Plain(0);
  params.repeat_penalty = 2;
  params.presence_penalty = 0.5F;
  params.frequency_penalty = 0.25F;
  const std::vector<TokenId> history = {0, 1, 1, 3};
  EXPECT_EQ(SampleOne(params, {2, -1, 0.74F, 3}, history), 3);
  EXPECT_EQ(SampleOne(params, {2, -1, 0.76F, 3}, history), 2);
  EXPECT_EQ(SampleOne(params, {2, -1, 0.24F, -9}, history), 0);
  EXPECT_EQ(SampleOne(params, {2, -1, 0.26F, -9}, history), 2);
  EXPECT_EQ(SampleOne(params, {-9, -1, -2.99F, -9}, history), 2);
  EXPECT_EQ(SampleOne(params, {-9, -1, -3.01F, -9}, history), 1);
  EXPECT_EQ(SampleOne(params, {2, -1, 0.76F, 3}, {}), 3);
}

TEST(Sampler, PenaltyWindow) {
  auto params = Plain(0);
  params.presence_penalty = 1;
  const std::vector<float> logits = {1, 0.9F, 0.8F};
  const std::vector<TokenId> history = {0, 1, 2, 1};
  params.repeat_last_n = 0;
  EXPECT_EQ(SampleOne(params, logits, history), 0);
  params.repeat_last_n = 2;  // 2 and 1
  EXPECT_EQ(SampleOne(params, logits, history), 0);
  params.repeat_last_n = 4;
  EXPECT_EQ(SampleOne(params, logits, {0, 2, 2, 2}), 1);
  params.repeat_last_n = -1;  // num_ctx
  params.num_ctx = 3;
  EXPECT_EQ(SampleOne(params, logits, history), 0);
  params.num_ctx = 0;  // all there is
  EXPECT_EQ(SampleOne(params, {1, -9, -9}, {0}), 0);
  EXPECT_EQ(SampleOne(params, logits, {0, 2, 2, 2}), 1);
}

TEST(Sampler, PenaltiesOfNonsenseDoNotCrash) {
  auto params = Plain(0);
  params.repeat_penalty = 0;
  EXPECT_EQ(SampleOne(params, {1, 2}, {1}), 1);
  params.repeat_penalty = 1e-38F;
  params.frequency_penalty = 3e38F;
  EXPECT_EQ(SampleOne(params, {1, 2}, {1, 1, 1}), 0);
  EXPECT_EQ(SampleOne(params, {1, 2}, {-1, 2, INT32_MAX, INT32_MIN}), 1);
  params.presence_penalty = std::nanf("");
  Sampler sampler(params);
  Workspace workspace;
  EXPECT_FALSE(sampler.Sample(std::vector<float>{1, 2}, std::vector<TokenId>{1}, workspace));
}

TEST(Sampler, ImpossibleTokensNeverCome) {
  const std::vector<float> logits = {-kInfinity, 1, -kInfinity, 1};
  for (auto params : {Plain(1000), Plain(kInfinity)}) {
    EXPECT_EQ(Seen(params, logits), (std::set<TokenId>{1, 3}));
    params.top_k = 3;
    EXPECT_EQ(Seen(params, logits), (std::set<TokenId>{1, 3}));
    params.typical_p = 0.9999F;
    params.top_p = 0.9999F;
    EXPECT_EQ(Seen(params, logits), (std::set<TokenId>{1, 3}));
  }
}

TEST(Sampler, BadLogitsAreErrorsAndTakeNoNumber) {
  Sampler sampler(Plain());
  Workspace workspace;
  for (const std::vector<float>& logits :
       {std::vector<float>{1, std::nanf("")}, {1, kInfinity}, {-kInfinity, -kInfinity}, {}}) {
    const auto token = sampler.Sample(logits, {}, workspace);
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, api::ErrorCode::kInternal);
  }
  EXPECT_EQ(sampler.random_stream().drawn, 0U);
}

std::vector<std::vector<float>> RandomSteps(size_t steps, size_t vocabulary) {
  std::mt19937 random(5);
  std::vector<std::vector<float>> result(steps);
  for (auto& logits : result) {
    for (size_t i = 0; i < vocabulary; ++i) {
      logits.push_back(static_cast<float>(random() % 100'000) / 10'000.0F);
    }
  }
  return result;
}

TEST(Sampler, IsRepeatableWhateverElseUsesTheWorkspace) {
  const auto steps = RandomSteps(50, 300);
  auto params = Plain(1.5F);
  params.top_k = 40;
  params.top_p = 0.95F;
  params.repeat_penalty = 1.2F;
  const auto run = [&](Workspace& workspace, Sampler* other) {
    Sampler sampler(params);
    std::vector<TokenId> tokens;
    for (const auto& logits : steps) {
      tokens.push_back(sampler.Sample(logits, tokens, workspace).value());
      if (other != nullptr) {
        EXPECT_TRUE(other->Sample(std::vector<float>(7, 1.0F), std::vector<TokenId>{1, 2, 6}, workspace));
      }
    }
    return tokens;
  };
  Workspace alone;
  Workspace shared;
  Sampler other(params, {.seed = 9});
  const auto tokens = run(alone, nullptr);
  EXPECT_EQ(run(shared, &other), tokens);
  params.seed = 43;
  EXPECT_NE(run(alone, nullptr), tokens);
}

// A runner that takes over after n tokens needs the seed and n, also where those tokens were greedy.
TEST(Sampler, ResumesFromSeedAndCount) {
  const auto steps = RandomSteps(20, 50);
  Workspace workspace;
  Sampler sampler(Plain(1.5F));
  std::vector<TokenId> tokens;
  for (const auto& logits : steps) tokens.push_back(sampler.Sample(logits, tokens, workspace).value());
  Sampler resumed(Plain(1.5F), {.seed = 42, .drawn = 11});
  for (size_t i = 11; i < steps.size(); ++i)
    EXPECT_EQ(resumed.Sample(steps[i], tokens, workspace), tokens[i]);
  Sampler copy(Plain(1.5F), resumed.random_stream());
  EXPECT_EQ(copy.Sample(steps[0], {}, workspace).value(), resumed.Sample(steps[0], {}, workspace).value());
  Sampler greedy(Plain(0));
  EXPECT_TRUE(greedy.Sample(steps[0], {}, workspace));
  EXPECT_EQ(greedy.random_stream().drawn, 1U);
}

// The chain as its description reads, on a large vocabulary.
TEST(Sampler, AgreesWithASlowChain) {
  for (const auto& logits : RandomSteps(5, 130'000)) {
    auto params = Plain(0.8F);
    params.top_p = 0.6F;
    params.min_p = 0.2F;
    std::vector<Candidate> all;
    for (size_t id = 0; id < logits.size(); ++id) all.push_back({static_cast<TokenId>(id), logits[id]});
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
    double total = 0;
    for (const Candidate& c : all) total += std::exp(double{c.logit});
    double covered = 0;
    size_t kept = 0;
    while (covered < double{params.top_p} * total) covered += std::exp(double{all[kept++].logit});
    all.resize(kept);
    std::erase_if(all, [&](const Candidate& c) {
      return std::exp(double{c.logit} - double{all[0].logit}) < double{params.min_p};
    });
    double mass = 0;
    for (const Candidate& c : all) mass += std::exp(double{c.logit} / 0.8F);
    double left = RandomStream{.seed = 42}.Next() * mass;
    size_t chosen = 0;
    while ((left -= std::exp(double{all[chosen].logit} / 0.8F)) >= 0) ++chosen;
    EXPECT_EQ(SampleOne(params, logits), all[chosen].id);
  }
}

TEST(Sampler, AMaskLeavesTheAllowedAlone) {
  std::vector<float> logits(200);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) / 7;
  for (const size_t words : {size_t{3}, size_t{4}, size_t{9}}) {
    std::vector<uint64_t> allowed(words);
    allowed[0] = 0b1010;
    allowed[1] = ~uint64_t{0};
    Workspace workspace;
    const auto masked = workspace.Mask(logits, allowed);
    ASSERT_EQ(masked.size(), logits.size());
    for (size_t i = 0; i < masked.size(); ++i) {
      const bool kept = i == 1 || i == 3 || (i >= 64 && i < 128);
      EXPECT_EQ(masked[i], kept ? logits[i] : -kInfinity) << i;
    }
  }
  Workspace workspace;
  const std::vector<uint64_t> all(4, ~uint64_t{0});
  EXPECT_TRUE(std::ranges::equal(workspace.Mask(logits, all), logits));
}

}  // namespace
}  // namespace quire::runner::sampler
