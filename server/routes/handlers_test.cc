// The routes through the front door, over a scripted scheduler.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawClient;
using testing::RawResponse;
using testing::Step;
using testing::TestDaemon;

constexpr const char* kChat = R"({"model":"Demo","messages":[{"role":"user","content":"hi"}])";

std::string Chat(const std::string& more = "") { return kChat + more + "}"; }

api::Finished Done(api::FinishReason reason = api::FinishReason::kStop) {
  api::Finished finished{.reason = reason, .stop_string = {}, .usage = {}};
  finished.usage = {.prompt_tokens = 9,
                    .cached_tokens = 4,
                    .output_tokens = 2,
                    .queue_ns = 1,
                    .prompt_ns = 5,
                    .output_ns = 6};
  return finished;
}

std::vector<Step> Hello() {
  return {api::Event(api::PromptReady{9, 4}), api::Event(api::TextDelta{"Hel", {}, 1}),
          api::Event(api::TextDelta{"lo", {}, 1}), api::Event(Done())};
}

api::Event Fails(api::ErrorCode code, std::string message) { return api::Failed{{code, std::move(message)}}; }

std::vector<json> Lines(const std::string& body) {
  std::vector<json> lines;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find('\n', at);
    lines.push_back(json::parse(body.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

TEST(OllamaRoutes, ChatStreamsLinesByDefaultAndEchoesTheName) {
  TestDaemon daemon;
  daemon.backend().script.events = Hello();
  const RawResponse response = daemon.Post("/api/chat", Chat());
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
  EXPECT_TRUE(response.chunked && response.whole);
  const auto lines = Lines(response.body);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["message"]["content"], "Hel");
  EXPECT_EQ(lines[0]["model"], "Demo");
  EXPECT_EQ(lines[2]["done"], true);
  EXPECT_EQ(lines[2]["prompt_eval_count"], 9);
  EXPECT_EQ(lines[2]["load_duration"], 3000000);
}

TEST(OllamaRoutes, ChatAsOneObject) {
  TestDaemon daemon;
  daemon.backend().script.events = Hello();
  const RawResponse response = daemon.Post("/api/chat", Chat(R"(,"stream":false)"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/json; charset=utf-8");
  EXPECT_EQ(json::parse(response.body)["message"]["content"], "Hello");
}

TEST(OllamaRoutes, WhatTheModelSaysGoesUnderWhatTheRequestSays) {
  TestDaemon daemon;
  daemon.backend().script.events = Hello();
  daemon.Post("/api/chat", Chat(R"(,"options":{"top_k":3,"bogus":1},"truncate":false,"keep_alive":"10m")"));
  const auto& seen = daemon.backend().seen;
  ASSERT_EQ(seen.requests.size(), 1u);
  const api::Request& request = seen.requests[0];
  EXPECT_FLOAT_EQ(request.params.temperature, 0.5F);  // the model's
  EXPECT_EQ(request.params.top_k, 3);                 // the request's
  EXPECT_FLOAT_EQ(request.params.top_p, 0.9F);        // the default
  EXPECT_EQ(request.overflow, api::Overflow::kRefuse);
  EXPECT_EQ(seen.keep_alives[0], 10min);
  EXPECT_EQ(seen.submitted[0].name, "demo:latest");
  const auto& messages = std::get<api::ChatPrompt>(request.prompt).messages;
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].content, "Be kind.");
  EXPECT_EQ(messages[1].content, "earlier");
  EXPECT_EQ(messages[2].content, "hi");
}

TEST(OllamaRoutes, GenerateAndALargeBody) {
  TestDaemon daemon;
  daemon.backend().script.events = Hello();
  const std::string prompt(1 << 20, 'x');
  const RawResponse response = daemon.Post(
      "/api/generate", json{{"model", "demo"}, {"prompt", prompt}, {"raw", true}, {"stream", false}}.dump());
  EXPECT_EQ(json::parse(response.body)["response"], "Hello");
  EXPECT_EQ(std::get<api::RawPrompt>(daemon.backend().seen.requests[0].prompt).text, prompt);
}

TEST(OllamaRoutes, NoPromptLoadsOrUnloads) {
  TestDaemon daemon;
  const json loaded =
      json::parse(daemon.Post("/api/chat", R"({"model":"demo","messages":[],"keep_alive":90})").body);
  EXPECT_EQ(loaded["done_reason"], "load");
  EXPECT_EQ(loaded["message"]["content"], "");
  const json unloaded = json::parse(daemon.Post("/api/generate", R"({"model":"demo","keep_alive":0})").body);
  EXPECT_EQ(unloaded["done_reason"], "unload");
  EXPECT_EQ(unloaded["response"], "");
  const auto& seen = daemon.backend().seen;
  EXPECT_EQ(seen.loads, 1);
  EXPECT_EQ(seen.keep_alives[0], 90s);
  EXPECT_EQ(seen.unloaded.size(), 1u) << "for all: the client is on this machine";
  EXPECT_TRUE(seen.claims_ended.empty());
  EXPECT_TRUE(seen.requests.empty());
}

TEST(OllamaRoutes, BadRequestsSayWhy) {
  TestDaemon daemon;
  const auto expect = [&daemon](const std::string& path, const std::string& body, int status,
                                const std::string& text) {
    const RawResponse response = daemon.Post(path, body);
    EXPECT_EQ(response.status, status) << path << body;
    EXPECT_THAT(json::parse(response.body)["error"].get<std::string>(), HasSubstr(text)) << path << body;
  };
  expect("/api/chat", "", 400, "body");
  expect("/api/chat", "{\"model\":", 400, "");
  expect("/api/chat", R"({"messages":[]})", 400, "model");
  expect("/api/chat", R"({"model":"a/b/c/d:!","messages":[]})", 400, "invalid model name");
  expect("/api/chat", R"({"model":"none","messages":[]})", 404, "none");
  expect("/api/generate", R"({"model":"none","prompt":"x"})", 404, "not found");
  expect("/api/show", R"({"model":"none"})", 404, "not found");
  expect("/api/embed", R"({"model":"none","input":"x"})", 404, "not found");
  expect("/api/embed", R"({"model":"demo","input":[1,2]})", 400, "input");
  expect("/api/chat", Chat(R"(,"options":{"temperature":"hot"})"), 400, "temperature");
}

// Whatever ends a request before its first byte keeps its status, streamed or not.
TEST(OllamaRoutes, ErrorsBeforeTheFirstByteArePlain) {
  for (const std::string stream : {"true", "false"}) {
    TestDaemon daemon;
    auto& script = daemon.backend().script;
    script.submit_error = api::Error{api::ErrorCode::kOverloaded, "server busy"};
    const RawResponse busy = daemon.Post("/api/chat", Chat(",\"stream\":" + stream));
    EXPECT_EQ(busy.status, 503);
    EXPECT_EQ(busy.body, R"({"error":"server busy"})");
    EXPECT_EQ(busy.headers.at("retry-after"), "1");

    script.submit_error.reset();
    script.events = {api::Event(api::PromptReady{9, 0}),
                     Fails(api::ErrorCode::kRunnerDied, "the runner died")};
    const RawResponse died = daemon.Post("/api/chat", Chat(",\"stream\":" + stream));
    EXPECT_EQ(died.status, 500);
    EXPECT_FALSE(died.chunked);
    EXPECT_EQ(died.body, R"({"error":"the runner died"})");

    script.events = {Fails(api::ErrorCode::kContextLengthExceeded, "too long: 9 of 4")};
    EXPECT_EQ(daemon.Post("/api/generate", R"({"model":"demo","prompt":"x","stream":)" + stream + "}").status,
              400);
  }
}

// While its model's queue is full, no job is made of a request that wants an answer; a model can be unloaded.
TEST(OllamaRoutes, AFullQueueRefusesAtOnce) {
  TestDaemon daemon;
  daemon.backend().script.refusal = api::Error{api::ErrorCode::kOverloaded, "server busy"};
  const std::string messages =
      R"({"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"x"}]})";
  const std::string text = R"({"model":"demo","prompt":"x"})";
  for (const char* path : {"/api/generate", "/api/chat", "/v1/chat/completions", "/v1/completions",
                           "/v1/responses", "/v1/messages"}) {
    const std::string route = path;
    const bool of_text = route == "/api/generate" || route == "/v1/completions";
    const RawResponse busy = daemon.Post(path, of_text                    ? text
                                               : route == "/v1/responses" ? R"({"model":"demo","input":"x"})"
                                                                          : messages);
    ASSERT_EQ(busy.status, 503) << path << busy.body;
    EXPECT_THAT(busy.body, HasSubstr("server busy")) << path;
    EXPECT_EQ(busy.headers.at("retry-after"), "1") << path;
  }
  EXPECT_TRUE(daemon.backend().seen.requests.empty());
  const uint64_t parses = daemon.pools().parses.tasks();
  const std::string filler(17 << 10, ' ');
  EXPECT_EQ(daemon.Post("/v1/chat/completions", messages + filler).status, 503);
  EXPECT_EQ(daemon.pools().parses.tasks() - parses, 1U) << "parsed only";
  EXPECT_EQ(daemon.Post("/api/generate", R"({"model":"demo","keep_alive":0})").status, 200);
  EXPECT_EQ(daemon.backend().seen.unloaded.size(), 1U);
}

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

std::vector<Step> ACall() {
  return {api::Event(api::PromptReady{9, 4}),
          api::Event(api::TextDelta{.text = "", .tokens = 1, .thinking = "hm"}),
          api::Event(api::TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c1", "f", R"({"a":1})"}}}),
          api::Event(Done())};
}

TEST(OllamaRoutes, ToolsGoInAndCallsComeOut) {
  TestDaemon daemon;
  daemon.backend().script.events = ACall();
  const auto lines = Lines(daemon.Post("/api/chat", Chat(std::string(kTools) + R"(,"think":"low")")).body);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["message"]["thinking"], "hm");
  EXPECT_EQ(lines[1]["message"]["tool_calls"][0]["function"]["arguments"], (json{{"a", 1}}));
  EXPECT_EQ(lines[2]["done_reason"], "stop");
  const api::Request& request = daemon.backend().seen.requests[0];
  EXPECT_EQ(std::get<api::ChatPrompt>(request.prompt).tools.at(0).name, "f");
  EXPECT_EQ(request.think, api::Think::kLow);
  EXPECT_EQ(request.model_name, "Demo");
}

TEST(OpenAiRoutes, ToolsGoInAndCallsComeOut) {
  TestDaemon daemon;
  daemon.backend().script.events = ACall();
  const json whole = json::parse(
      daemon.Post("/v1/chat/completions", Chat(std::string(kTools) + R"(,"parallel_tool_calls":false)"))
          .body);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], R"({"a":1})");
  EXPECT_EQ(whole["choices"][0]["message"]["reasoning_content"], "hm");
  const std::string stream =
      daemon
          .Post("/v1/chat/completions", Chat(std::string(kTools) + R"(,"stream":true,"tool_choice":"none")"))
          .body;
  EXPECT_THAT(stream, HasSubstr(R"("finish_reason":"tool_calls")"));
  const auto& seen = daemon.backend().seen.requests;
  EXPECT_TRUE(seen[0].single_tool_call);
  EXPECT_TRUE(std::get<api::ChatPrompt>(seen[1].prompt).tools.empty()) << "none may be called";
}

TEST(OllamaRoutes, ADeathInTheStreamIsAnErrorLineAndTheConnectionLivesOn) {
  TestDaemon daemon;
  daemon.backend().script.events = {api::Event(api::PromptReady{9, 0}),
                                    api::Event(api::TextDelta{"Hel", {}, 1}),
                                    Fails(api::ErrorCode::kRunnerDied, "the runner died")};
  RawClient client(daemon.port());
  client.Send(testing::PostBytes("/api/chat", Chat()));
  const RawResponse response = client.Read();
  EXPECT_TRUE(response.whole);
  const auto lines = Lines(response.body);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], (json{{"error", "the runner died"}}));
  client.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().status, 200);
}

TEST(OpenAiRoutes, ChatStreamsEventsAndEndsWithDone) {
  TestDaemon daemon;
  daemon.backend().script.events = Hello();
  const RawResponse response = daemon.Post("/v1/chat/completions", Chat(R"(,"stream":true)"));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(response.whole);
  EXPECT_TRUE(response.body.starts_with("data: {"));
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_THAT(response.body, HasSubstr(R"("model":"Demo")"));
}

TEST(OpenAiRoutes, DefaultsAreTheDialectsAndPromptsAreNeverCut) {
  TestDaemon daemon;
  daemon.backend().script.events = Hello();
  const json first = json::parse(daemon.Post("/v1/chat/completions", Chat()).body);
  const json second = json::parse(daemon.Post("/v1/chat/completions", Chat()).body);
  EXPECT_EQ(first["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_TRUE(first["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_NE(first["id"], second["id"]);
  const api::Request& request = daemon.backend().seen.requests[0];
  EXPECT_EQ(request.overflow, api::Overflow::kRefuse);
  EXPECT_FLOAT_EQ(request.params.top_p, 1.0F);
  EXPECT_FLOAT_EQ(request.params.temperature, 0.5F);  // the model's PARAMETER
}

TEST(OpenAiRoutes, ErrorsHaveTheDialectsShape) {
  TestDaemon daemon;
  const json missing = json::parse(
      daemon.Post("/v1/chat/completions", R"({"model":"none","messages":[{"role":"user","content":"x"}]})")
          .body);
  EXPECT_EQ(missing["error"]["type"], "not_found_error");
  EXPECT_EQ(missing["error"]["param"], nullptr);
  EXPECT_EQ(json::parse(daemon.Post("/v1/chat/completions", "{").body)["error"]["type"],
            "invalid_request_error");
  EXPECT_EQ(json::parse(daemon.Get("/v1/none").body)["error"]["type"], "not_found_error");
  EXPECT_EQ(json::parse(daemon.Get("/v1/chat/completions").body)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json::parse(daemon.Get("/api/none").body)["error"], "not found");

  daemon.backend().script.events = {Fails(api::ErrorCode::kContextLengthExceeded, "9 tokens, 4 fit")};
  const RawResponse refused = daemon.Post("/v1/chat/completions", Chat(R"(,"stream":true)"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "context_length_exceeded");
}

TEST(OpenAiRoutes, ADeathInTheStreamIsAnErrorEventWithoutDone) {
  TestDaemon daemon;
  daemon.backend().script.events = {api::Event(api::PromptReady{9, 0}),
                                    api::Event(api::TextDelta{"Hel", {}, 1}),
                                    Fails(api::ErrorCode::kRunnerDied, "the runner died")};
  const RawResponse response = daemon.Post("/v1/chat/completions", Chat(R"(,"stream":true)"));
  EXPECT_TRUE(response.whole);
  EXPECT_THAT(response.body, HasSubstr("data: {\"error\":{\"message\":\"the runner died\""));
  EXPECT_THAT(response.body, Not(HasSubstr("[DONE]")));
}

TEST(OpenAiRoutes, AModelIsFoundByPlainAndEncodedName) {
  TestDaemon daemon;
  const json list = json::parse(daemon.Get("/v1/models").body);
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "demo:latest");
  EXPECT_EQ(json::parse(daemon.Get("/v1/models/library%2Fdemo%3Alatest").body)["id"], "library/demo:latest");
  EXPECT_EQ(daemon.Get("/v1/models/demo").status, 200);
  EXPECT_EQ(daemon.Get("/v1/models/none").status, 404);
}

TEST(ListRoutes, TagsAndShowAndPs) {
  TestDaemon daemon;
  auto& script = daemon.backend().script;
  script.inspected.capabilities = {"completion", "tools"};
  script.inspected.model_info_json = R"({"general.architecture":"lfm2","general.basename":"x"})";
  script.inspected.tensors_json = "[]";
  script.inspected.chat_template = "{{ messages }}";
  const json tags = json::parse(daemon.Get("/api/tags").body);
  ASSERT_EQ(tags["models"].size(), 1u);
  EXPECT_EQ(tags["models"][0]["name"], "demo:latest");
  EXPECT_EQ(tags["models"][0]["capabilities"], json::array({"completion", "tools"}));
  const json show = json::parse(daemon.Post("/api/show", R"({"name":"demo"})").body);
  EXPECT_EQ(show["template"], "{{ messages }}");
  EXPECT_EQ(show["system"], "Be kind.");
  EXPECT_EQ(show["model_info"]["general.architecture"], "lfm2");
  EXPECT_EQ(show["capabilities"], json::array({"completion", "tools"}));
  const json copilot = json::parse(
      daemon.Post("/api/show", R"({"model":"Demo"})", "User-Agent: GitHubCopilotChat/0.1\r\n").body);
  EXPECT_EQ(copilot["model_info"]["general.basename"], "Demo");
  EXPECT_EQ(daemon.backend().seen.inspections, (std::vector<bool>{false}));  // kept by digest
  daemon.Post("/api/show", R"({"model":"demo","verbose":true})");
  EXPECT_EQ(daemon.backend().seen.inspections, (std::vector<bool>{false, true}));

  scheduler::LoadedModel loaded;
  loaded.spec = {tags["models"][0]["digest"], "demo:latest", "w"};
  loaded.num_ctx = 640;
  loaded.size_bytes = 5;
  loaded.memory_bytes = 7;
  loaded.runner_pid = ::getpid();
  script.loaded = {loaded};
  const json ps = json::parse(daemon.Get("/api/ps").body);
  EXPECT_EQ(ps["models"][0]["context_length"], 640);
  EXPECT_GT(ps["models"][0]["size"], 100'000) << "what this process has";
  EXPECT_EQ(ps["models"][0]["size_max"], 7);
  EXPECT_EQ(ps["models"][0]["details"]["family"], tags["models"][0]["details"]["family"]);
}

TEST(ListRoutes, AModelThatIsBeingLoadedSaysHowFar) {
  TestDaemon daemon;
  const json tags = json::parse(daemon.Get("/api/tags").body);
  daemon.OnIoThread([&] {
    daemon.backend().script.loading = {
        {{tags["models"][0]["digest"], "demo:latest", "w"}, 0.3F, "quantizing weights", 1}};
  });
  const json ps = json::parse(daemon.Get("/api/ps").body);
  EXPECT_EQ(ps["models"][0]["name"], "demo:latest");
  EXPECT_EQ(ps["models"][0]["details"]["family"], tags["models"][0]["details"]["family"]);
  EXPECT_EQ(ps["models"][0]["loading"].dump(), R"({"progress":0.3,"stage":"quantizing weights"})");
}

TEST(ListRoutes, AFailedInspectionIsTriedAgain) {
  TestDaemon daemon;
  daemon.backend().script.inspected.error = api::Error{api::ErrorCode::kBadModel, "truncated"};
  EXPECT_EQ(daemon.Post("/api/show", R"({"model":"demo"})").status, 500);
  daemon.OnIoThread([&daemon] { daemon.backend().script.inspected.error.reset(); });
  EXPECT_EQ(daemon.Post("/api/show", R"({"model":"demo"})").status, 200);
}

// The reader of an event stream learns that its prompt was taken long before the first token.
TEST(SlowPrefill, TheHeaderOfAnEventStreamLeavesWithThePrompt) {
  for (const std::string choices : {"1", "2"}) {
    TestDaemon daemon;
    daemon.backend().script.events = {api::Event(api::PromptReady{1, 0}), testing::Block{},
                                      Fails(api::ErrorCode::kRunnerDied, "the runner died")};
    RawClient client(daemon.port());
    client.Send(testing::PostBytes("/v1/chat/completions", Chat(R"(,"stream":true,"n":)" + choices)));
    std::string seen;
    while (!seen.ends_with("\r\n\r\n")) seen += client.ReadSome(1);
    EXPECT_TRUE(seen.starts_with("HTTP/1.1 200 OK"));
    daemon.OnIoThread([&daemon] { daemon.backend().Release(); });
    while (!seen.ends_with("\r\n0\r\n\r\n")) seen += client.ReadSome(1);
    EXPECT_THAT(seen, HasSubstr("data: {\"error\""));
  }
}

// NDJSON has no comments: during a long wait only the header is sent.
TEST(SlowPrefill, AnOllamaStreamSendsItsHeaderDuringALongWait) {
  TransportLimits limits;
  limits.keep_alive_interval = 20ms;
  TestDaemon daemon(limits);
  daemon.backend().script.events = {api::Event(api::PromptReady{1, 0}), testing::Block{}, api::Event(Done())};
  RawClient client(daemon.port());
  client.Send(testing::PostBytes("/api/chat", Chat()));
  std::string seen;
  while (!seen.ends_with("\r\n\r\n")) seen += client.ReadSome(1);
  EXPECT_TRUE(seen.starts_with("HTTP/1.1 200 OK"));
  daemon.OnIoThread([&daemon] { daemon.backend().Release(); });
  while (!seen.ends_with("\r\n0\r\n\r\n")) seen += client.ReadSome(1);
  EXPECT_THAT(seen, HasSubstr("\"done\":true"));
}

TEST(HealthRoutes, AnswerAndTellWhenDraining) {
  TestDaemon daemon;
  const RawResponse root = daemon.Get("/");
  EXPECT_EQ(root.body, "Ollama is running");
  EXPECT_THAT(root.headers.at("content-type"), HasSubstr("text/plain"));
  EXPECT_EQ(json::parse(daemon.Get("/api/version").body)["version"], QUIRE_VERSION);
  EXPECT_EQ(daemon.Get("/livez").status, 200);
  RawClient client(daemon.port());
  client.Send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().status, 200);
  daemon.OnIoThread([&daemon] { daemon.server().StopAccepting(); });
  client.Send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().status, 503);
}

// Where a client can leave: in the queue or the load, before and after the prompt is taken, while text comes.
struct Phase {
  const char* name;
  bool submit;
  std::vector<Step> events;
};

class ClientLeaves : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(ClientLeaves, AndTheWorkIsAbandoned) {
  static const std::vector<Phase> phases = {
      {"queue", true, Hello()},
      {"admission", false, {testing::Block{}, api::Event(Done())}},
      {"prefill", false, {api::Event(api::PromptReady{1, 0}), testing::Block{}, api::Event(Done())}},
      {"decode",
       false,
       {api::Event(api::PromptReady{1, 0}), api::Event(api::TextDelta{"x", {}, 1}), testing::Block{},
        api::Event(Done())}},
  };
  const auto& [index, stream] = GetParam();
  const Phase& phase = phases[static_cast<size_t>(index)];
  for (const std::string path : {"/api/chat", "/v1/chat/completions"}) {
    TestDaemon daemon;
    daemon.backend().script.block_submit = phase.submit;
    daemon.backend().script.events = phase.events;
    RawClient client(daemon.port());
    client.Send(testing::PostBytes(path, Chat(fmt::format(",\"stream\":{}", stream))));
    daemon.backend().blocked.get_future().wait();
    client.Close();
    daemon.backend().abandoned.get_future().wait();
    EXPECT_EQ(daemon.Get("/health").status, 200) << phase.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ClientLeaves,
                         ::testing::Combine(::testing::Range(0, 4), ::testing::Values("true", "false")));

TEST(ClientLeavesALoad, AndTheLoadIsAbandoned) {
  TestDaemon daemon;
  daemon.backend().script.block_submit = true;
  RawClient client(daemon.port());
  client.Send(testing::PostBytes("/api/generate", R"({"model":"demo"})"));
  daemon.backend().blocked.get_future().wait();
  client.Close();
  daemon.backend().abandoned.get_future().wait();
}

TEST(SlowPrefill, AnEventStreamIsKeptAliveByComments) {
  TransportLimits limits;
  limits.keep_alive_interval = 20ms;
  TestDaemon daemon(limits);
  daemon.backend().script.events = {api::Event(api::PromptReady{1, 0}), testing::Block{},
                                    Fails(api::ErrorCode::kRunnerDied, "the runner died")};
  RawClient client(daemon.port());
  client.Send(testing::PostBytes("/v1/chat/completions", Chat(R"(,"stream":true)")));
  std::string seen;
  while (seen.find(": waiting\n\n") == std::string::npos) seen += client.ReadSome(1);
  EXPECT_TRUE(seen.starts_with("HTTP/1.1 200 OK"));
  daemon.OnIoThread([&daemon] { daemon.backend().Release(); });
  while (!seen.ends_with("\r\n0\r\n\r\n")) seen += client.ReadSome(1);
  EXPECT_THAT(seen, HasSubstr("data: {\"error\""));
}

}  // namespace
}  // namespace quire::server
