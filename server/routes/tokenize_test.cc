// /tokenize and /detokenize through the front door, over a scripted scheduler.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using testing::TestDaemon;

TEST(TokenizeRoutes, AnswerWithIdsAndText) {
  TestDaemon daemon;
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}};
  finished.context = {5, 6};
  daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}),
                                    api::Event(api::TextDelta{"hi", {}, 0}), api::Event(finished)};
  EXPECT_EQ(daemon.Post("/tokenize", R"({"model":"demo","content":"hi"})").body, R"({"tokens":[5,6]})");
  EXPECT_EQ(daemon.Post("/detokenize", R"({"model":"demo","tokens":[5,6]})").body,
            R"({"content":"hi","prompt":"hi"})");
  EXPECT_TRUE(daemon.backend().seen.requests[0].prompt_only);
}

TEST(TokenizeRoutes, AnswerVllmInItsShape) {
  TestDaemon daemon;
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}};
  finished.context = {5, 6};
  api::TextDelta pieces;
  pieces.logprobs = {{{"h", 5, 0}, {}}, {{"i", 6, 0}, {}}};
  daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}), api::Event(pieces),
                                    api::Event(finished)};
  const json all = json::parse(
      daemon.Post("/tokenize", R"({"model":"demo","prompt":"hi","return_token_strs":true})").body);
  EXPECT_EQ(all["count"], 2);
  EXPECT_EQ(all["tokens"].dump(), "[5,6]");
  EXPECT_EQ(all["token_strs"].dump(), R"(["h","i"])");
  EXPECT_TRUE(all["max_model_len"].is_number());
  daemon.OnIoThread([&] {
    daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}), api::Event(finished)};
  });
  const json chat =
      json::parse(daemon.Post("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})").body);
  EXPECT_EQ(chat["count"], 2);
  EXPECT_EQ(chat["token_strs"], nullptr);
}

TEST(TokenizeRoutes, WithoutANameTheOnlyModelIsMeant) {
  TestDaemon daemon;
  const auto ask = [&daemon] { return daemon.Post("/tokenize", R"({"content":"hi"})"); };
  daemon.backend().script.events = {
      api::Event(api::PromptReady{2, 0}),
      api::Event(api::Finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}})};
  EXPECT_EQ(ask().status, 200) << "none is loaded, one is stored";
  EXPECT_EQ(daemon.Post("/api/copy", R"({"source":"demo","destination":"second"})").status, 200);
  EXPECT_EQ(ask().status, 400);
  scheduler::LoadedModel loaded;
  loaded.spec = {"key", "second:latest", "w"};
  daemon.OnIoThread([&] { daemon.backend().script.loaded = {loaded}; });
  EXPECT_EQ(ask().status, 200);
  EXPECT_EQ(daemon.backend().seen.submitted.back().name, "second:latest");
  daemon.OnIoThread([&] { daemon.backend().script.loaded = {loaded, loaded}; });
  EXPECT_EQ(ask().status, 400);
}

TEST(TokenizeRoutes, LargeRepliesAreEncodedOffTheIoThread) {
  TestDaemon daemon;
  const auto tasks_of = [&daemon](const char* path, const api::TextDelta& delta, const api::Finished& end) {
    daemon.OnIoThread([&] {
      daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}), api::Event(delta),
                                        api::Event(end)};
    });
    const uint64_t before = daemon.pools().cpu.tasks();
    EXPECT_EQ(daemon.Post(path, R"({"model":"demo","content":"hi","tokens":[1]})").status, 200);
    return daemon.pools().cpu.tasks() - before;
  };
  api::Finished finished;
  finished.context = std::vector<api::TokenId>(1000, 5);
  EXPECT_EQ(tasks_of("/tokenize", {}, finished), 0u);
  finished.context = std::vector<api::TokenId>(100'000, 5);
  EXPECT_EQ(tasks_of("/tokenize", {}, finished), 1u);
  api::TextDelta delta;
  delta.text = std::string(200'000, 'x');
  EXPECT_EQ(tasks_of("/detokenize", delta, {}), 1u);
  delta = {};
  delta.logprobs = std::vector<api::TokenLogprob>(2000, {{"a", 7, 0}, {}});
  EXPECT_EQ(tasks_of("/tokenize", delta, {}), 1u);
}

TEST(TokenizeRoutes, RequestsAreMadeInTheNameOfTheirClient) {
  TestDaemon daemon;
  daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}), api::Event(api::Finished{})};
  for (const char* field : {"Authorization: Bearer alice\r\n", "Authorization: Bearer bob\r\n"}) {
    EXPECT_EQ(daemon.Post("/tokenize", R"({"model":"demo","content":"hi"})", field).status, 200);
  }
  const std::vector<api::Request>& requests = daemon.backend().seen.requests;
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_NE(requests[0].client.tenant, "");
  EXPECT_NE(requests[0].client.tenant, requests[1].client.tenant);
}

// Nobody checks the credentials: they isolate caches, but make nobody another party.
TEST(TokenizeRoutes, WithoutKeysAnAddressIsOneParty) {
  TestDaemon daemon;
  api::Finished finished;
  finished.embedding = {0.5F};
  daemon.backend().script.events = {api::Event(api::PromptReady{2, 0}), api::Event(finished)};
  const std::vector<std::pair<std::string, std::string>> routes = {
      {"/tokenize", R"({"model":"demo","content":"hi"})"},
      {"/api/generate", R"({"model":"demo","prompt":"hi"})"},
      {"/v1/chat/completions", R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})"},
      {"/api/embed", R"({"model":"demo","input":"hi"})"},
      {"/v1/rerank", R"({"model":"demo","query":"q","documents":["d"]})"}};
  for (const auto& [path, body] : routes) {
    const auto reply = daemon.Post(path, body, "Authorization: Bearer " + path + "\r\n");
    const api::Client& client = daemon.backend().seen.requests.back().client;
    EXPECT_EQ(client.Member(), reply.headers.at("x-request-id")) << path << ": one of several people, maybe";
    EXPECT_EQ(client.party.name(), "127.0.0.1") << path;
    EXPECT_NE(client.IsolationKey(), "0:") << path;
  }
  EXPECT_EQ(daemon.backend().seen.requests.size(), routes.size());
}

TEST(TokenizeRoutes, SlotsAreTheRequestsInFlightAndAFreeOne) {
  TestDaemon daemon;
  scheduler::LoadedModel loaded;
  loaded.spec = {"key", "demo:latest", "w"};
  loaded.running = 1;
  daemon.OnIoThread([&] { daemon.backend().script.loaded = {loaded}; });
  const json slots = json::parse(daemon.Get("/slots").body);
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_EQ(slots[0]["is_processing"], true);
  EXPECT_EQ(slots[1]["is_processing"], false);
}

TEST(TokenizeRoutes, ErrorsAreOllamas) {
  TestDaemon daemon;
  const auto unknown = daemon.Post("/tokenize", R"({"model":"none","content":"hi"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_TRUE(json::parse(unknown.body)["error"].is_string());
  EXPECT_EQ(daemon.Post("/detokenize", R"({"model":"demo","tokens":"x"})").status, 400);
}

}  // namespace
}  // namespace quire::server
