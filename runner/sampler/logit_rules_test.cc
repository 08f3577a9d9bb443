#include "runner/sampler/logit_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace quire::runner::sampler {
namespace {

using ::testing::ElementsAre;

constexpr float kNever = -std::numeric_limits<float>::infinity();
const std::vector<float> kLogits = {1, 2, 3, 4};

std::vector<float> Ruled(const api::GenerationParams& params, int32_t output_tokens = 0) {
  const std::unordered_set<TokenId> ends = {3, 9};
  Workspace workspace;
  const auto ruled = LogitRules(params, ends).Apply(kLogits, output_tokens, workspace);
  return {ruled.begin(), ruled.end()};
}

TEST(LogitRules, WithoutRulesTheLogitsAreHandedOn) {
  Workspace workspace;
  const LogitRules rules({}, {3});
  EXPECT_EQ(rules.Apply(kLogits, 0, workspace).data(), kLogits.data());
}

TEST(LogitRules, BiasesAddBanAndForce) {
  api::GenerationParams params;
  params.logit_bias = {{0, 2.5F}, {1, -100}, {77, 5}};
  EXPECT_THAT(Ruled(params), ElementsAre(3.5F, kNever, 3, 4));
  params.logit_bias = {{0, 100}, {2, 100}, {3, 50}};
  EXPECT_THAT(Ruled(params), ElementsAre(1, kNever, 3, kNever));
  params.logit_bias = {{77, 100}};
  EXPECT_THAT(Ruled(params), ElementsAre(1, 2, 3, 4));
}

TEST(LogitRules, EndsAreKeptAwayForSoManyTokensOrForEver) {
  api::GenerationParams params;
  params.min_tokens = 2;
  EXPECT_THAT(Ruled(params, 1), ElementsAre(1, 2, 3, kNever));
  EXPECT_THAT(Ruled(params, 2), ElementsAre(1, 2, 3, 4));
  params = {};
  params.ignore_eos = true;
  EXPECT_THAT(Ruled(params, std::numeric_limits<int32_t>::max() - 1), ElementsAre(1, 2, 3, kNever));
  params.logit_bias = {{3, 100}};
  EXPECT_THAT(Ruled(params), ElementsAre(kNever, kNever, kNever, 4)) << "what is forced comes";
}

}  // namespace
}  // namespace quire::runner::sampler
