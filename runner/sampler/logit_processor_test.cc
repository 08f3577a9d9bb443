#include "runner/sampler/logit_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace quire::runner::sampler {
namespace {

using ::testing::ElementsAre;

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
const std::vector<float> kLogits = {1, 2, 3, 4};

std::vector<float> Processed(const api::GenerationParams& params, int32_t output_tokens = 0) {
  const std::unordered_set<TokenId> ends = {3, 9};
  Workspace workspace;
  const auto processed = LogitProcessor(params, ends).Apply(kLogits, output_tokens, workspace);
  return {processed.begin(), processed.end()};
}

TEST(LogitProcessor, WithoutBiasesTheLogitsAreHandedOn) {
  Workspace workspace;
  const LogitProcessor processor({}, {3});
  EXPECT_EQ(processor.Apply(kLogits, 0, workspace).data(), kLogits.data());
}

TEST(LogitProcessor, BiasesAddBanAndForce) {
  api::GenerationParams params;
  params.logit_bias = {{0, 2.5F}, {1, -100}, {77, 5}};
  EXPECT_THAT(Processed(params), ElementsAre(3.5F, kNegativeInfinity, 3, 4));
  params.logit_bias = {{0, 100}, {2, 100}, {3, 50}};
  EXPECT_THAT(Processed(params), ElementsAre(1, kNegativeInfinity, 3, kNegativeInfinity));
  params.logit_bias = {{77, 100}};
  EXPECT_THAT(Processed(params), ElementsAre(1, 2, 3, 4));
}

TEST(LogitProcessor, EosIsBannedForMinTokensOrAlways) {
  api::GenerationParams params;
  params.min_tokens = 2;
  EXPECT_THAT(Processed(params, 1), ElementsAre(1, 2, 3, kNegativeInfinity));
  EXPECT_THAT(Processed(params, 2), ElementsAre(1, 2, 3, 4));
  params = {};
  params.ignore_eos = true;
  EXPECT_THAT(Processed(params, std::numeric_limits<int32_t>::max() - 1),
              ElementsAre(1, 2, 3, kNegativeInfinity));
  params.logit_bias = {{3, 100}};
  EXPECT_THAT(Processed(params), ElementsAre(kNegativeInfinity, kNegativeInfinity, kNegativeInfinity, 4))
      << "what is forced comes";
}

TEST(LogitProcessor, TokensAreBannedAsTheFirstOfAnAnswer) {
  api::GenerationParams params;
  Workspace workspace;
  const auto processed = [&](int32_t output_tokens) {
    const auto logits = LogitProcessor(params, {}, {2, 9}).Apply(kLogits, output_tokens, workspace);
    return std::vector<float>(logits.begin(), logits.end());
  };
  EXPECT_THAT(processed(0), ElementsAre(1, 2, kNegativeInfinity, 4));
  EXPECT_THAT(processed(1), ElementsAre(1, 2, 3, 4));
  params.logit_bias = {{0, 2}};
  EXPECT_THAT(processed(0), ElementsAre(3, 2, kNegativeInfinity, 4));
  EXPECT_THAT(processed(1), ElementsAre(3, 2, 3, 4));
}

}  // namespace
}  // namespace quire::runner::sampler
