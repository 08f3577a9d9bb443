// Thinking and tool calls of the bundled model, as its golden file has them in one text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/json/testing/tools_of.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kWeather =
    R"({"type":"function","function":{"name":"get_weather","description":"Get the weather in a city","parameters":)"
    R"({"type":"object","properties":{"city":{"type":"string","description":"Name of the city"}},"required":["city"]}}})";

api::Request ChatWithTools(std::vector<api::Message> messages, const std::string& tools = "[]") {
  api::Request request = Greedy("");
  request.prompt = api::ChatPrompt{std::move(messages), api::testing::ToolsOf(tools)};
  request.params.num_predict = 200;
  request.model_name = "Demo";
  return request;
}

std::string Thinking(const Outcome& outcome) {
  std::string joined;
  for (const auto& delta : outcome.deltas) joined += delta.thinking;
  return joined;
}

std::vector<std::string> CallsAsText(const Outcome& outcome) {
  std::vector<std::string> calls;
  for (const auto& delta : outcome.deltas) {
    for (const auto& call : delta.tool_calls) {
      calls.push_back(call.name + call.arguments_json);
      EXPECT_FALSE(call.id.empty());
    }
  }
  return calls;
}

const api::Request kSum =
    ChatWithTools({{"system", "Think step by step before you answer."}, {"user", "What is 38 + 47?"}});

TEST(EngineOutput, ACallComesWholeAndNothingOfItIsText) {
  const auto outcome = EngineHarness().Generate(
      ChatWithTools({{"user", "What is the weather in Paris?"}}, std::string("[") + kWeather + "]"));
  ASSERT_TRUE(outcome.finished);
  EXPECT_THAT(CallsAsText(outcome), ElementsAre(R"(get_weather{"city":"Paris"})"));
  EXPECT_EQ(outcome.text(), "");
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
  EXPECT_EQ(outcome.finished->usage.output_tokens, 12);
  int32_t tokens = 0;
  for (const auto& delta : outcome.deltas) tokens += delta.tokens;
  EXPECT_EQ(tokens, 12);
}

TEST(EngineOutput, AResultIsAnsweredInText) {
  const auto outcome = EngineHarness().Generate(ChatWithTools(
      {{"user", "What is the weather in Rome?"},
       {.role = "assistant", .content = "", .tool_calls = {{"c1", "get_weather", R"({"city":"Rome"})"}}},
       {.role = "tool",
        .content = R"({"temperature": 21, "condition": "sunny"})",
        .tool_name = "get_weather"}},
      std::string("[") + kWeather + "]"));
  EXPECT_EQ(outcome.text(), "It is 21 degrees and sunny in Rome.");
  EXPECT_THAT(CallsAsText(outcome), ElementsAre());
}

TEST(EngineOutput, ProgressOfThePromptIsReportedWhereAsked) {
  EngineHarness harness({.limits = {.prefill_tokens = 4, .cache_bytes = kPlenty, .prefix_cache = false}});
  api::Request request = ChatWithTools({{"user", "What is the weather in Paris, in Rome and in Oslo?"}});
  const auto silent = harness.Generate(request);
  EXPECT_THAT(silent.progress, ElementsAre());
  request.report_progress = true;
  const auto outcome = harness.Generate(request);
  std::vector<int32_t> expected;
  for (int32_t computed = 4; computed < outcome.ready->prompt_tokens; computed += 4)
    expected.push_back(computed);
  EXPECT_GT(expected.size(), 3U);
  EXPECT_THAT(outcome.progress, testing::ElementsAreArray(expected));
  EXPECT_EQ(outcome.text(), silent.text());
}

TEST(EngineOutput, ThinkingStandsApart) {
  EngineHarness harness;
  const auto thought = harness.Generate(kSum);
  EXPECT_EQ(Thinking(thought),
            "Ones: 8 + 7 = 15. Write 5, carry 1. Tens: 3 + 4 + 1 = 8. So the result is 85.");
  EXPECT_EQ(thought.text(), "38 + 47 = 85.");
  auto off = kSum;
  off.think = api::Think::kOff;
  const auto silent = harness.Generate(off);
  EXPECT_EQ(Thinking(silent), "");
  EXPECT_EQ(silent.text(), "38 + 47 = 85.");
  EXPECT_EQ(silent.finished->usage.output_tokens, thought.finished->usage.output_tokens);
}

TEST(EngineOutput, WhatIsStreamedIsWhatOneDeltaWouldHold) {
  // With logprobs every token is a delta; without, text waits for what it may belong to.
  EngineHarness harness;
  const auto plain = harness.Generate(kSum);
  const auto logged = harness.Generate(Logged(kSum));
  EXPECT_GT(logged.deltas.size(), plain.deltas.size());
  EXPECT_EQ(Thinking(logged), Thinking(plain));
  EXPECT_EQ(logged.text(), plain.text());
}

TEST(EngineOutput, ThinkingCutByLengthIsAllThinking) {
  auto request = kSum;
  request.params.num_predict = 12;
  const auto outcome = EngineHarness().Generate(request);
  EXPECT_THAT(Thinking(outcome), testing::StartsWith("Ones: 8 + 7"));
  EXPECT_EQ(outcome.text(), "");
  EXPECT_EQ(outcome.finished->reason, api::FinishReason::kLength);
}

TEST(EngineOutput, ThinkingEndsAfterItsTokens) {
  EngineHarness harness;
  const auto whole = harness.Generate(kSum);
  EXPECT_GT(whole.finished->usage.reasoning_tokens, 20);
  EXPECT_LT(whole.finished->usage.reasoning_tokens, whole.finished->usage.output_tokens);
  auto request = kSum;
  request.thinking_tokens_max = 8;
  const auto cut = harness.Generate(request);
  EXPECT_FALSE(Thinking(cut).empty());
  EXPECT_THAT(Thinking(whole), testing::StartsWith(Thinking(cut)));
  EXPECT_LT(Thinking(cut).size(), Thinking(whole).size() / 2);
  EXPECT_FALSE(cut.text().empty());
  EXPECT_EQ(cut.finished->reason, api::FinishReason::kStop);
  EXPECT_EQ(cut.finished->usage.reasoning_tokens, 10);  // with the line break and the end tag
  EXPECT_EQ(harness.Generate(Logged(request)).text(), cut.text());
  request.thinking_tokens_max = 0;
  const auto none = harness.Generate(request);
  EXPECT_EQ(Thinking(none), "");
  EXPECT_FALSE(none.text().empty());
  request.thinking_tokens_max = 1000;
  EXPECT_EQ(Thinking(harness.Generate(request)), Thinking(whole));
}

TEST(EngineOutput, StopTokensEndTheAnswer) {
  EngineHarness harness;
  const auto whole = harness.Generate(Greedy("What is the capital of France?"));
  std::vector<api::TokenId> ids;
  for (const auto& delta : whole.deltas)
    ids.insert(ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  ASSERT_GT(ids.size(), 3U);
  auto request = Greedy("What is the capital of France?");
  request.params.stop_token_ids = {ids[2]};
  const auto cut = harness.Generate(request);
  EXPECT_EQ(cut.finished->reason, api::FinishReason::kStop);
  EXPECT_EQ(cut.finished->usage.output_tokens, 2);
  EXPECT_THAT(whole.text(), testing::StartsWith(cut.text()));
  request.params.stop_token_ids = {1'000'000};
  EXPECT_EQ(harness.Generate(request).failed->error.field, "stop_token_ids");
}

TEST(EngineOutput, RawPromptsAreNotRead) {
  auto request = Greedy("");
  request.prompt = api::RawPrompt{
      "<|im_start|>system\nThink step by step before you answer.<|im_end|>\n<|im_start|>user\nWhat is 38 + "
      "47?<|im_end|>\n<|im_start|>assistant\n"};
  request.params.num_predict = 8;
  EXPECT_THAT(EngineHarness().Generate(request).text(), HasSubstr("<think>"));
}

TEST(EngineOutput, WhatTheModelCannotDoIsRefused) {
  EngineHarness harness;
  auto request = kSum;
  request.model_name = "Demo";
  request.think = api::Think::kHigh;
  const auto refused = harness.Generate(request);
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kUnsupported);
  EXPECT_EQ(refused.failed->error.message, "\"Demo\" does not support thinking");
  request.think_optional = true;
  EXPECT_EQ(harness.Generate(request).text(), "38 + 47 = 85.");
}

TEST(EngineOutput, OneCallEndsTheAnswerWhereOneIsAllowed) {
  auto request =
      ChatWithTools({{"user", "What is the weather in Paris?"}}, std::string("[") + kWeather + "]");
  request.single_tool_call = true;
  const auto outcome = EngineHarness().Generate(request);
  ASSERT_TRUE(outcome.finished);
  EXPECT_THAT(CallsAsText(outcome), ElementsAre(R"(get_weather{"city":"Paris"})"));
}

}  // namespace
}  // namespace quire::runner::engine
