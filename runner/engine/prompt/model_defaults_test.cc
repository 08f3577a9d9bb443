#include "runner/engine/prompt/model_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using ::testing::ElementsAre;

TEST(ModelDefaults, AddWhatTheRequestDoesNotSpecify) {
  weights::GenerationDefaults defaults;
  defaults.options.temperature = 0.6F;
  defaults.options.top_k = 20;
  defaults.banned = {3, 5};
  defaults.banned_first = {9};
  defaults.stop = {"</s>"};
  api::Options own;
  own.top_k = 7;
  own.stop = {{"x"}};
  own.logit_bias = {{{5, 1.5F}}};
  api::Request request;
  request.params = Resolve(own);
  request.specified = Specified(own);
  BuiltPrompt prompt;
  ApplyModelDefaults(defaults, request, prompt);
  const api::GenerationParams& params = request.params;
  EXPECT_EQ(params.temperature, 0.6F);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.top_p, 0.9F) << "the API's default";
  EXPECT_THAT(params.stop, ElementsAre("x", "</s>"));
  EXPECT_EQ(prompt.sampling, R"({"temperature":0.6})");
  EXPECT_THAT(prompt.banned_first, ElementsAre(9));
  std::vector<std::pair<api::TokenId, float>> biases;
  for (const api::LogitBias& bias : params.logit_bias) biases.emplace_back(bias.token, bias.bias);
  EXPECT_THAT(biases, ElementsAre(std::pair(5, 1.5F), std::pair(3, -100.0F)))
      << "a bias of the request stays";
}

TEST(ModelDefaults, AreNoneWhereTheyAreNotUsed) {
  const auto model = Load("tests/data/models/lfm2", [](float, std::string_view) {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(LoadModelDefaults(*model, true).options.top_k, 50);
  EXPECT_EQ(api::Specified(LoadModelDefaults(*model, false).options), 0U);
}

}  // namespace
}  // namespace quire::runner::engine
