// DRY, XTC, top_n_sigma and Mirostat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runner/sampler/dry.h"
#include "runner/sampler/mirostat.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::sampler {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Token n is the letter of that number; 26 is a line break.
std::string_view Letter(TokenId id) {
  static const std::string letters = "abcdefghijklmnopqrstuvwxyz\n";
  return std::string_view(letters).substr(static_cast<size_t>(id), 1);
}

std::vector<TokenId> Tokens(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(c == '\n' ? 26 : c - 'a');
  return tokens;
}

// What DRY takes from each letter.
std::map<char, float> Penalties(const api::GenerationParams& params, std::string_view text) {
  std::vector<float> logits(27, 0);
  DryPenalty(params, Letter).Apply(Tokens(text), logits);
  std::map<char, float> penalties;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != 0) penalties[Letter(static_cast<TokenId>(i))[0]] = -logits[i];
  }
  return penalties;
}

using Expected = std::map<char, float>;

TEST(Dry, PenaltyGrowsWithTheRepetition) {
  api::GenerationParams params;
  params.dry_multiplier = 1;
  params.dry_base = 2;
  EXPECT_EQ(Penalties(params, "abcxab"), (Expected{{'c', 1}}));
  EXPECT_EQ(Penalties(params, "abcdxabc"), (Expected{{'d', 2}}));
  EXPECT_EQ(Penalties(params, "bcdyabcdexabc"), (Expected{{'d', 2}}));
  EXPECT_EQ(Penalties(params, "xabcdyabcexabc"), (Expected{{'d', 4}, {'e', 2}}));
  EXPECT_EQ(Penalties(params, "aaaa"), (Expected{{'a', 2}}));
  EXPECT_EQ(Penalties(params, "abcxb"), (Expected{}));
  EXPECT_EQ(Penalties(params, ""), (Expected{}));
  params.dry_allowed_length = 3;
  EXPECT_EQ(Penalties(params, "abcdxabc"), (Expected{{'d', 1}}));
  params.dry_allowed_length = 4;
  EXPECT_EQ(Penalties(params, "abcdxabc"), (Expected{}));
}

TEST(Dry, NoRepetitionReachesAcrossABreaker) {
  api::GenerationParams params;
  params.dry_multiplier = 1;
  params.dry_base = 2;
  EXPECT_EQ(Penalties(params, "ab\ncdxab\nc"), (Expected{}));
  EXPECT_EQ(Penalties(params, "ab\ncdexab\ncd"), (Expected{{'e', 1}}));
  EXPECT_EQ(Penalties(params, "ab\nxab"), (Expected{}));  // the line break would be the repetition
  params.dry_sequence_breakers = {"bc"};
  EXPECT_EQ(Penalties(params, "abcdexabcde"), (Expected{{'x', 1}}));
  EXPECT_EQ(Penalties(params, "abcdxabc"), (Expected{}));
}

TEST(Dry, TheWindowAndLongRepetitionsAreBounded) {
  api::GenerationParams params;
  params.dry_multiplier = 1;
  params.dry_penalty_last_n = 4;
  EXPECT_EQ(Penalties(params, "abcxab"), (Expected{}));
  params.dry_penalty_last_n = -1;
  const std::string line = std::string(300, 'a') + "b" + std::string(300, 'a');
  const auto penalties = Penalties(params, line);
  EXPECT_TRUE(std::isfinite(penalties.at('b')));
  EXPECT_GT(penalties.at('b'), 1e30F);
  params.dry_multiplier = 0;
  EXPECT_FALSE(DryPenalty(params, Letter).active());
  params.dry_multiplier = 1;
  EXPECT_FALSE(DryPenalty(params, {}).active());
}

// How often each token comes of 4,000 seeds.
std::vector<float> Shares(const api::GenerationParams& params, const std::vector<float>& logits) {
  Workspace workspace;
  std::vector<float> shares(logits.size(), 0);
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Sampler sampler(params, RandomStream{.seed = seed});
    shares[static_cast<size_t>(*sampler.Sample(logits, {}, workspace))] += 1.0F / 4000;
  }
  return shares;
}

api::GenerationParams Unfiltered() {
  api::GenerationParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  return params;
}

const std::vector<float> kFalling = {std::log(0.5F), std::log(0.25F), std::log(0.2F), std::log(0.05F)};

TEST(Xtc, LeavesTheLastOfTheLikelyTokens) {
  api::GenerationParams params = Unfiltered();
  params.xtc_probability = 1;
  params.xtc_threshold = 0.15F;
  EXPECT_THAT(Shares(params, kFalling), ElementsAre(0, 0, FloatNear(0.8F, 0.03F), FloatNear(0.2F, 0.03F)));
  params.xtc_threshold = 0.3F;  // a single one stays
  EXPECT_THAT(Shares(params, kFalling)[0], FloatNear(0.5F, 0.03F));
  params.xtc_threshold = 0.15F;
  params.xtc_probability = 0.5F;
  EXPECT_THAT(Shares(params, kFalling)[0], FloatNear(0.25F, 0.03F));
}

TEST(TopNSigma, KeepsWhatIsNearTheHighest) {
  api::GenerationParams params = Unfiltered();
  const std::vector<float> logits = {4, 3, 0, 0, 0, kNever};  // deviation 1.74
  params.top_n_sigma = 1;
  const auto shares = Shares(params, logits);
  EXPECT_GT(shares[1], 0.2F);
  EXPECT_EQ(shares[2] + shares[3] + shares[4] + shares[5], 0);
  params.top_n_sigma = 3;
  EXPECT_GT(Shares(params, logits)[2], 0);
}

// The mean surprise in bits under the model's distribution, of a text of 400 tokens.
double MeanSurprise(api::GenerationParams params, const std::vector<float>& logits) {
  params.seed = 7;
  Workspace workspace;
  Sampler sampler(params);
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  double surprise = 0;
  constexpr int kTokens = 400;
  for (int i = 0; i < kTokens; ++i) {
    const TokenId token = *sampler.Sample(logits, {}, workspace);
    surprise -= std::log2(std::exp(double{logits[static_cast<size_t>(token)]}) / total) / kTokens;
  }
  return surprise;
}

TEST(Mirostat, SurpriseFollowsTheTarget) {
  std::vector<float> logits;
  for (int i = 1; i <= 2000; ++i) logits.push_back(-1.1F * std::log(static_cast<float>(i)));
  api::GenerationParams params = Unfiltered();
  const double free = MeanSurprise(params, logits);
  for (const int32_t version : {1, 2}) {
    SCOPED_TRACE(version);
    params.mirostat = version;
    params.mirostat_tau = 2;
    const double low = MeanSurprise(params, logits);
    params.mirostat_tau = 4;
    const double high = MeanSurprise(params, logits);
    EXPECT_LT(low, high);
    EXPECT_LT(high, free);
  }
}

TEST(Mirostat, GoesOnFromItsState) {
  api::GenerationParams params = Unfiltered();
  params.mirostat = 2;
  params.seed = 3;
  Workspace workspace;
  Sampler whole(params);
  std::vector<TokenId> tokens;
  std::vector<float> states;
  for (int i = 0; i < 20; ++i) {
    states.push_back(*whole.state());
    tokens.push_back(*whole.Sample(kFalling, {}, workspace));
  }
  Sampler resumed(params);
  for (int i = 0; i < 10; ++i) resumed.SkipOne();
  resumed.set_state(states[10]);
  for (size_t i = 10; i < 20; ++i) EXPECT_EQ(*resumed.Sample(kFalling, {}, workspace), tokens[i]);
  EXPECT_EQ(resumed.state(), whole.state());
  // Where there is nothing to choose nothing is learned: such tokens may also come without being sampled.
  const float before = *resumed.state();
  ASSERT_TRUE(resumed.Sample(std::vector<float>{kNever, 1, kNever}, {}, workspace));
  EXPECT_EQ(resumed.state(), before);
  EXPECT_EQ(Sampler(Unfiltered()).state(), std::nullopt);
}

// A runner whose frame has a number that is not finite is replaced.
TEST(Mirostat, TheStateIsFiniteWhateverTheTarget) {
  Workspace workspace;
  for (const int32_t version : {1, 2}) {
    for (const float tau : {0.0F, 5e3F, 1e30F, 1.75e38F, std::numeric_limits<float>::max()}) {
      for (const float eta : {0.0F, 0.1F, 1.0F}) {
        api::GenerationParams params = Unfiltered();
        params.mirostat = version;
        params.mirostat_tau = tau;
        params.mirostat_eta = eta;
        Sampler sampler(params);
        for (int i = 0; i < 100; ++i) {
          ASSERT_LE(std::abs(*sampler.state()), Mirostat::kLimitMax) << version << " " << tau << " " << eta;
          ASSERT_TRUE(sampler.Sample(kFalling, {}, workspace));
        }
      }
    }
  }
}

TEST(Mirostat, GreedyStaysGreedy) {
  api::GenerationParams params = Unfiltered();
  params.mirostat = 2;
  params.temperature = 0;
  EXPECT_EQ(Shares(params, kFalling)[1], 0);
}

}  // namespace
}  // namespace quire::runner::sampler
