// The Anthropic routes through the front door, over a scripted scheduler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawResponse;
using testing::Step;
using testing::TestDaemon;

std::string RequestBody(const std::string& more = "", const std::string& model = "Demo") {
  return R"({"model":")" + model + R"(","max_tokens":9,"messages":[{"role":"user","content":"hi"}])" + more +
         "}";
}

std::vector<Step> HelloMessage() {
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = "END", .usage = {}};
  finished.usage.prompt_tokens = 9;
  finished.usage.cached_tokens = 4;
  finished.usage.output_tokens = 2;
  return {api::Event(api::PromptReady{9, 4}), api::Event(api::TextDelta{"Hel", {}, 1}),
          api::Event(api::TextDelta{"lo", {}, 1}), api::Event(finished)};
}

TEST(AnthropicRoutes, AWholeMessage) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloMessage();
  const RawResponse response =
      daemon.Post("/v1/messages", RequestBody(), "anthropic-version: 2023-06-01\r\n");
  EXPECT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  EXPECT_EQ(body["content"][0]["text"], "Hello");
  EXPECT_EQ(body["model"], "Demo");
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], "END");
  EXPECT_EQ(body["usage"]["input_tokens"], 5);
  EXPECT_EQ(body["usage"]["cache_read_input_tokens"], 4);
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("msg_"));
  const api::Request& request = daemon.backend().seen.requests[0];
  EXPECT_EQ(request.params.num_predict, 9);
  EXPECT_EQ(request.overflow, api::Overflow::kRefuse);
  EXPECT_FALSE(request.prompt_only);
}

TEST(AnthropicRoutes, AStreamIsNamedEventsWithoutDone) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloMessage();
  const RawResponse response = daemon.Post("/v1/messages", RequestBody(R"(,"stream":true)"));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(response.whole);
  EXPECT_TRUE(response.body.starts_with("event: message_start\ndata: {\"type\":\"message_start\""));
  EXPECT_TRUE(response.body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  EXPECT_THAT(response.body, Not(HasSubstr("[DONE]")));
}

TEST(AnthropicRoutes, CountingComputesNothing) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloMessage();
  const RawResponse response = daemon.Post("/v1/messages/count_tokens", RequestBody());
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"input_tokens":9})");
  EXPECT_TRUE(daemon.backend().seen.requests[0].prompt_only);
}

TEST(OpenAiRoutes, ShapesOfOtherClients) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloMessage();
  const RawResponse count = daemon.Post("/v1/responses/input_tokens", R"({"model":"demo","input":"Hi"})");
  EXPECT_EQ(count.body, R"({"object":"response.input_tokens","input_tokens":9})");
  EXPECT_TRUE(daemon.backend().seen.requests[0].prompt_only);
  const RawResponse fill =
      daemon.Post("/v1/fim/completions", R"({"model":"demo","prompt":"a","suffix":"b"})");
  EXPECT_EQ(json::parse(fill.body)["choices"][0]["message"]["content"], "Hello");
  EXPECT_TRUE(std::holds_alternative<api::FimPrompt>(daemon.backend().seen.requests[1].prompt));
  const json list = json::parse(daemon.Get("/v1/models", "anthropic-version: 2023-06-01\r\n").body);
  EXPECT_EQ(list["data"][0]["type"], "model");
  EXPECT_EQ(list["first_id"], "demo:latest");
  EXPECT_TRUE(list["data"][0]["capabilities"]["thinking"]["types"]["disabled"]["supported"]);
  EXPECT_EQ(json::parse(daemon.Get("/v1/models").body)["object"], "list");
}

TEST(AnthropicRoutes, ErrorsHaveTheDialectsShapeAndTheRequestsId) {
  TestDaemon daemon;
  const auto expect = [&daemon](const std::string& path, const std::string& body, int status,
                                const std::string& type) {
    const RawResponse response = daemon.Post(path, body);
    EXPECT_EQ(response.status, status) << body;
    const json error = json::parse(response.body);
    EXPECT_EQ(error["type"], "error") << body;
    EXPECT_EQ(error["error"]["type"], type) << body;
    EXPECT_EQ(error["request_id"], response.headers.at("x-request-id")) << body;
  };
  for (const std::string path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    expect(path, "{", 400, "invalid_request_error");
    expect(path, R"({"model":"Demo","max_tokens":1,"messages":[]})", 400, "invalid_request_error");
    expect(path, RequestBody("", "none"), 404, "not_found_error");
  }
  EXPECT_EQ(json::parse(daemon.Get("/v1/messages").body)["type"], "error");
  daemon.backend().script.submit_error = api::Error{api::ErrorCode::kOverloaded, "server busy"};
  expect("/v1/messages", RequestBody(R"(,"stream":true)"), 503, "overloaded_error");
}

TEST(AnthropicRoutes, ADeathInTheStreamIsAnErrorEvent) {
  TestDaemon daemon;
  daemon.backend().script.events = {
      api::Event(api::PromptReady{9, 0}), api::Event(api::TextDelta{"Hel", {}, 1}),
      api::Event(api::Failed{{api::ErrorCode::kRunnerDied, "the runner died"}})};
  const RawResponse response = daemon.Post("/v1/messages", RequestBody(R"(,"stream":true)"));
  EXPECT_TRUE(response.whole);
  EXPECT_THAT(response.body, HasSubstr("event: error\ndata: {\"type\":\"error\""));
  EXPECT_THAT(response.body, Not(HasSubstr("message_stop")));
}

}  // namespace
}  // namespace quire::server
