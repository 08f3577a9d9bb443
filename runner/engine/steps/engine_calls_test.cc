// Forced calls and calls of strict tools, by the engine with the bundled model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/json/testing/tools_of.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;

constexpr const char* kParameters =
    R"({"type":"object","properties":{"city":{"enum":["Paris","Rome","Oslo"]},"days":{"type":"integer","minimum":1,)"
    R"("maximum":7}},"required":["city","days"]})";

std::string Tool(const std::string& name, const std::string& parameters, bool strict = false) {
  return R"({"type":"function","function":{"name":")" + name + R"(","strict":)" +
         (strict ? "true" : "false") + R"(,"parameters":)" + parameters + "}}";
}

const std::string kTwoTools =
    "[" + Tool("get_weather", kParameters) + "," +
    Tool("set_flag", R"({"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]})") + "]";

api::Request Offer(const std::string& tools, int64_t seed = 1) {
  api::Request request;
  request.prompt = api::ChatPrompt{{{"user", "What is the weather in Paris?"}}, api::testing::ToolsOf(tools)};
  request.params.temperature = 1;
  request.params.top_k = 0;
  request.params.top_p = 1;
  request.params.seed = seed;
  request.params.num_predict = 400;
  return request;
}

api::Request Force(api::Request request, std::string name = {}) {
  request.tool_choice = api::ToolChoice::kRequired;
  request.forced_tool = std::move(name);
  return request;
}

std::vector<api::ToolCall> Calls(const Outcome& outcome) {
  std::vector<api::ToolCall> calls;
  for (const auto& delta : outcome.deltas) {
    calls.insert(calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
  }
  return calls;
}

void ExpectMatchesSchema(const api::ToolCall& call) {
  const json arguments = json::parse(call.arguments_json);
  if (call.name == "set_flag") {
    EXPECT_EQ(arguments.size(), 1U);
    EXPECT_TRUE(arguments["on"].is_boolean()) << call.arguments_json;
    return;
  }
  EXPECT_EQ(call.name, "get_weather");
  EXPECT_EQ(arguments.size(), 2U) << call.arguments_json;
  EXPECT_THAT(arguments["city"], AnyOf("Paris", "Rome", "Oslo"));
  EXPECT_TRUE(arguments["days"].is_number_integer() && arguments["days"] >= 1 && arguments["days"] <= 7)
      << call.arguments_json;
}

TEST(EngineCalls, AForcedAnswerIsCallsThatHoldTheirSchemas) {
  EngineHarness harness;
  std::vector<api::RequestId> ids;
  for (int64_t seed = 0; seed < 20; ++seed) ids.push_back(harness.Submit(Force(Offer(kTwoTools, seed))));
  for (const auto id : ids) {
    const auto outcome = harness.Wait(id);
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finished->reason, api::FinishReason::kStop);
    EXPECT_EQ(outcome.text(), "");
    const auto calls = Calls(outcome);
    EXPECT_GE(calls.size(), 1U);
    for (const auto& call : calls) ExpectMatchesSchema(call);
  }
}

TEST(EngineCalls, ANamedToolIsTheOneThatIsCalled) {
  EngineHarness harness;
  for (int64_t seed = 0; seed < 4; ++seed) {
    auto request = Force(Offer(kTwoTools, seed), "set_flag");
    request.single_tool_call = true;
    const auto outcome = harness.Generate(request);
    const auto calls = Calls(outcome);
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls[0].name, "set_flag");
    ExpectMatchesSchema(calls[0]);
    EXPECT_EQ(outcome.text(), "");
  }
}

TEST(EngineCalls, TheSameAloneCachedAndInABatch) {
  const auto request = Force(Offer(kTwoTools, 7));
  EngineHarness harness;
  const auto cold = harness.Generate(request);
  const auto cached = harness.Generate(request);
  EXPECT_GT(cached.ready->cached_tokens, 0);
  std::vector<api::RequestId> others;
  for (int i = 0; i < 6; ++i) others.push_back(harness.Submit(Force(Offer(kTwoTools, 20 + i))));
  const auto batched = harness.Generate(request);
  for (const auto id : others) harness.Wait(id);
  ASSERT_FALSE(Calls(cold).empty());
  for (const auto* other : {&cached, &batched}) {
    ASSERT_EQ(Calls(*other).size(), Calls(cold).size());
    for (size_t i = 0; i < Calls(cold).size(); ++i) {
      EXPECT_EQ(Calls(*other)[i].arguments_json, Calls(cold)[i].arguments_json);
    }
  }
}

// Left to itself the model calls get_weather with a "place" that the tool does not have.
TEST(EngineCalls, AStrictToolIsCalledAsItsSchemaSays) {
  EngineHarness harness;
  auto strict = Offer("[" + Tool("get_weather", kParameters, true) + "]");
  strict.params.temperature = 0;
  const auto calls = Calls(harness.Generate(strict));
  ASSERT_GE(calls.size(), 1U);
  for (const auto& call : calls) ExpectMatchesSchema(call);
  // Where no call is due it answers in text.
  auto hello = strict;
  hello.prompt = api::ChatPrompt{{{"user", "Hello!"}},
                                 api::testing::ToolsOf("[" + Tool("get_weather", kParameters, true) + "]")};
  const auto answer = harness.Generate(hello);
  EXPECT_EQ(answer.finished->reason, api::FinishReason::kStop);
  EXPECT_FALSE(answer.text().empty() && Calls(answer).empty());
}

TEST(EngineCalls, WithAFormatTheAnswerIsThatOrCalls) {
  EngineHarness harness;
  for (int64_t seed = 0; seed < 8; ++seed) {
    auto request = Offer(kTwoTools, seed);
    request.format = api::OutputFormat{api::OutputFormat::Kind::kChoice, R"(["yes","no"])", "format"};
    const auto outcome = harness.Generate(request);
    ASSERT_TRUE(outcome.finished);
    for (const auto& call : Calls(outcome)) ExpectMatchesSchema(call);
    if (!Calls(outcome).empty()) continue;
    EXPECT_THAT(outcome.text(), AnyOf("yes", "no"));
  }
}

TEST(EngineCalls, OnlyStrictSchemasHaveToBeEnforceable) {
  EngineHarness harness;
  const std::string odd =
      R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}},"required":["a"]})";
  const auto loose = harness.Generate(Force(Offer("[" + Tool("f", odd) + "]")));
  ASSERT_TRUE(loose.finished);
  if (loose.finished->reason == api::FinishReason::kStop) {
    for (const auto& call : Calls(loose)) EXPECT_TRUE(json::parse(call.arguments_json).is_object());
  }
  for (const auto& request :
       {Force(Offer("[" + Tool("f", odd, true) + "]")), Offer("[" + Tool("f", odd, true) + "]")}) {
    const auto strict = harness.Generate(request);
    ASSERT_TRUE(strict.failed);
    EXPECT_EQ(strict.failed->error.code, api::ErrorCode::kUnsupported);
    EXPECT_THAT(strict.failed->error.message, HasSubstr("tools[0].function.parameters"));
    EXPECT_THAT(strict.failed->error.message, HasSubstr("\"uniqueItems\""));
  }
}

}  // namespace
}  // namespace quire::runner::engine
