// Several generations of one request through the front door, over a scripted scheduler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawClient;
using testing::RawResponse;
using testing::Step;
using testing::TestDaemon;

std::vector<Step> HelloChoice() {
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}};
  finished.usage.prompt_tokens = 9;
  finished.usage.cached_tokens = 4;
  finished.usage.output_tokens = 2;
  return {api::Event(api::PromptReady{9, 4}), api::Event(api::TextDelta{"Hel", {}, 1}),
          api::Event(api::TextDelta{"lo", {}, 1}), api::Event(finished)};
}

api::Event ChoiceFails(api::ErrorCode code, std::string message) {
  return api::Failed{{code, std::move(message)}};
}

// The JSON of every event but "[DONE]".
std::vector<json> EventsOf(const std::string& body) {
  std::vector<json> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    const std::string data = body.substr(at + 6, end - at - 6);
    if (data != "[DONE]") events.push_back(json::parse(data));
    at = end + 2;
  }
  return events;
}

TEST(CompletionRoute, OnePromptAndItsDefaults) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloChoice();
  const RawResponse response = daemon.Post("/v1/completions", R"({"model":"Demo","prompt":"Once"})");
  EXPECT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "Demo");
  EXPECT_EQ(body["choices"][0]["text"], "Hello");
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("cmpl-"));
  const api::Request& request = daemon.backend().seen.requests[0];
  EXPECT_EQ(std::get<api::RawPrompt>(request.prompt).text, "Once");
  EXPECT_EQ(request.params.num_predict, 16);
}

TEST(CompletionRoute, EveryPromptAndChoiceIsARequest) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloChoice();
  const json body = json::parse(
      daemon.Post("/v1/completions", R"({"model":"Demo","prompt":[[1,2],[3]],"n":2,"seed":5})").body);
  ASSERT_EQ(body["choices"].size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], "Hello");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 18);
  EXPECT_EQ(body["usage"]["completion_tokens"], 8);
  const auto& requests = daemon.backend().seen.requests;
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(std::get<api::TokenPrompt>(requests[3].prompt).tokens, (std::vector<api::TokenId>{3}));
  EXPECT_EQ(requests[1].params.seed, 6);
  EXPECT_GT(requests[0].now_s, 0);
  for (const api::Request& request : requests)
    EXPECT_EQ(request.now_s, requests[0].now_s) << "templates show one time";
}

TEST(CompletionRoute, AStreamCarriesAllChoicesAndEndsOnce) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloChoice();
  const RawResponse response = daemon.Post(
      "/v1/completions",
      R"({"model":"Demo","prompt":"Once","n":3,"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_TRUE(response.whole);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  std::vector<std::string> texts(3);
  std::set<std::string> ids;
  const auto events = EventsOf(response.body);
  for (const json& event : events) {
    ids.insert(event["id"]);
    for (const json& choice : event["choices"])
      texts.at(choice["index"]) += choice["text"].get<std::string>();
  }
  EXPECT_THAT(texts, ::testing::Each("Hello"));
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 6);
}

TEST(ResponsesRoute, WholeAndStreamed) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloChoice();
  const json body = json::parse(daemon.Post("/v1/responses", R"({"model":"Demo","input":"hi"})").body);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hello");
  EXPECT_EQ(body["status"], "completed");
  EXPECT_EQ(body["temperature"], 0.5);  // the model's PARAMETER
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("resp_"));
  const RawResponse stream = daemon.Post("/v1/responses", R"({"model":"Demo","input":"hi","stream":true})");
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(stream.body.starts_with("event: response.created\ndata: "));
  EXPECT_THAT(stream.body, HasSubstr("event: response.completed\n"));
  EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]")));
  const json refused = json::parse(daemon.Post("/v1/responses", R"({"model":"Demo"})").body);
  EXPECT_EQ(refused["error"]["param"], "input");
}

TEST(ChatRoute, ManyChoices) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloChoice();
  const std::string ask = R"({"model":"Demo","messages":[{"role":"user","content":"hi"}],"n":128)";
  const json body = json::parse(daemon.Post("/v1/chat/completions", ask + "}").body);
  ASSERT_EQ(body["choices"].size(), 128U);
  EXPECT_EQ(body["choices"][127]["message"]["content"], "Hello");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 9);
  const auto events = EventsOf(daemon.Post("/v1/chat/completions", ask + R"(,"stream":true})").body);
  size_t roles = 0;
  size_t ends = 0;
  for (const json& event : events) {
    roles += event["choices"][0]["delta"].count("role");
    ends += event["choices"][0]["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(roles, 128U);
  EXPECT_EQ(ends, 128U);
}

TEST(ChatRoute, WhatFailsEndsAllChoices) {
  TestDaemon daemon;
  const auto ask = [&daemon](const std::string& more) {
    return daemon.Post("/v1/chat/completions",
                       R"({"model":"Demo","messages":[{"role":"user","content":"hi"}],"n":3)" + more + "}");
  };
  daemon.backend().script.submit_error = api::Error{api::ErrorCode::kOverloaded, "server busy"};
  EXPECT_EQ(ask("").status, 503);
  EXPECT_EQ(ask(R"(,"stream":true)").status, 503);
  daemon.backend().script.submit_error.reset();

  daemon.backend().script.events = {ChoiceFails(api::ErrorCode::kContextLengthExceeded, "9 tokens, 4 fit")};
  EXPECT_EQ(ask(R"(,"stream":true)").status, 400);

  daemon.backend().script.events = {api::Event(api::PromptReady{9, 0}),
                                    api::Event(api::TextDelta{"Hel", {}, 1}),
                                    ChoiceFails(api::ErrorCode::kRunnerDied, "the runner died")};
  const RawResponse died = ask(R"(,"stream":true)");
  EXPECT_TRUE(died.whole);
  EXPECT_TRUE(died.body.ends_with("\"code\":null}}\n\n")) << died.body;
  EXPECT_THAT(died.body, Not(HasSubstr("[DONE]")));
}

// The request ends where all requests do that find no memory, and the other choices with it.
TEST(ChatRoute, AChoiceWithoutMemoryEndsTheRequest) {
  TestDaemon daemon;
  daemon.backend().script.events = {testing::Block{}, ChoiceFails(api::ErrorCode::kRunnerDied, "let go")};
  daemon.backend().script.out_of_memory = 1;
  const RawResponse response = daemon.Post(
      "/v1/chat/completions", R"({"model":"Demo","messages":[{"role":"user","content":"hi"}],"n":3})");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("connection"), "close");
  daemon.backend().abandoned.get_future().wait();
  EXPECT_EQ(daemon.Get("/health").status, 200);
}

TEST(ChatRoute, AClientThatLeavesEndsAllChoices) {
  for (const bool submit : {true, false}) {
    TestDaemon daemon;
    daemon.backend().script.block_submit = submit;
    daemon.backend().script.events = {api::Event(api::PromptReady{1, 0}), testing::Block{},
                                      ChoiceFails(api::ErrorCode::kRunnerDied, "let go")};
    RawClient client(daemon.port());
    client.Send(testing::PostBytes(
        "/v1/chat/completions",
        R"({"model":"Demo","messages":[{"role":"user","content":"hi"}],"n":3,"stream":true})"));
    daemon.backend().blocked.get_future().wait();
    client.Close();
    daemon.backend().abandoned.get_future().wait();
    EXPECT_EQ(daemon.Get("/health").status, 200);
  }
}

TEST(CohereRoutes, ChatAnswersInItsShape) {
  TestDaemon daemon;
  daemon.backend().script.events = HelloChoice();
  const std::string body = R"({"model":"Demo","messages":[{"role":"user","content":"hi"}])";
  const json whole = json::parse(daemon.Post("/v2/chat", body + "}").body);
  EXPECT_EQ(whole["message"]["content"][0]["text"], "Hello");
  EXPECT_EQ(whole["finish_reason"], "COMPLETE");
  const api::Request& request = daemon.backend().seen.requests.at(0);
  EXPECT_FLOAT_EQ(request.params.temperature, 0.5F);  // the model's
  EXPECT_FLOAT_EQ(request.params.top_p, 0.75F);
  const RawResponse stream = daemon.Post("/v2/chat", body + R"(,"stream":true})");
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  EXPECT_THAT(stream.body, HasSubstr(R"("delta":{"message":{"content":{"text":"Hel"}}})"));
  const RawResponse refused = daemon.Post("/v2/chat", body + R"(,"documents":5})");
  EXPECT_EQ(refused.status, 400);
  const json error = json::parse(refused.body);
  EXPECT_EQ(error.size(), 1U);
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("documents"));
}

TEST(OllamaRoutes, ASilentStreamGetsDeltasWithoutTextUntilTheFirstToken) {
  TransportLimits limits;
  limits.keep_alive_interval = std::chrono::milliseconds(20);
  for (const std::string path : {"/api/chat", "/api/generate"}) {
    TestDaemon daemon(limits);
    daemon.backend().script.events = HelloChoice();
    daemon.backend().script.events.insert(daemon.backend().script.events.begin() + 1, testing::Block{});
    RawClient client(daemon.port());
    client.Send(testing::PostBytes(
        path, path == "/api/chat" ? R"({"model":"Demo","messages":[{"role":"user","content":"hi"}]})"
                                  : R"({"model":"Demo","prompt":"hi"})"));
    std::string seen;
    while (seen.find("\"done\":false}\n") == std::string::npos) seen += client.ReadSome(1);
    EXPECT_THAT(seen, HasSubstr(path == "/api/chat" ? R"("message":{"role":"assistant","content":""})"
                                                    : R"("response":"")"));
    EXPECT_THAT(seen, Not(HasSubstr("Hel")));
    daemon.OnIoThread([&] { daemon.backend().Release(); });
    while (!seen.ends_with("\r\n0\r\n\r\n")) seen += client.ReadSome(1);
    EXPECT_THAT(seen, HasSubstr("Hel"));
    EXPECT_THAT(seen, HasSubstr(R"("done":true)"));
  }
}

}  // namespace
}  // namespace quire::server
