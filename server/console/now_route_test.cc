#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/console/console.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using testing::TestDaemon;
using Clock = std::chrono::steady_clock;

RequestLog LogOf(const std::string& key, const std::string& model = "demo:latest") {
  RequestLog log{.id = "r-" + key, .client = {}, .method = "POST", .path = "/api/chat"};
  log.stored_model = model;
  log.key = key;
  log.start = Clock::now() - std::chrono::seconds(2);
  return log;
}

// Sources of a daemon whose state a test sets.
struct World {
  std::vector<RequestLog> running;
  std::vector<scheduler::LoadedModel> models;
  RecentRequests recent;
  bool draining = false;
  NowSources sources{.visit_requests =
                         [this](const std::function<void(const RequestLog&)>& visit) {
                           for (const RequestLog& log : running) visit(log);
                         },
                     .loaded_models = [this] { return models; },
                     .memory_budget_bytes = [] { return int64_t{1000}; },
                     .draining = [this] { return draining; },
                     .recent = recent};

  json Now(const Viewer& viewer) { return json::parse(EncodeNow(sources, viewer, Clock::now())); }
};

TEST(Now, ShowsWhereARequestIs) {
  World world;
  RequestLog log = LogOf("");
  world.running = {log};
  EXPECT_EQ(world.Now({.key = "", .admin = true})["requests"][0]["phase"], "queued");
  log.queued = std::chrono::milliseconds(5);
  log.prompt_tokens = 100;
  log.cached_tokens = 90;
  log.miss = "diverged@90";
  world.running = {log};
  auto request = world.Now({.key = "", .admin = true})["requests"][0];
  EXPECT_EQ(request["phase"], "prefill");
  EXPECT_EQ(request["cached_tokens"], 90);
  EXPECT_EQ(request["miss"], "diverged@90");
  log.first_token = std::chrono::milliseconds(1000);
  log.streamed_tokens = 11;
  world.running = {log};
  request = world.Now({.key = "", .admin = true})["requests"][0];
  EXPECT_EQ(request["phase"], "decode");
  EXPECT_EQ(request["output_tokens"], 11);
  EXPECT_NEAR(request["tokens_per_second"].get<double>(), 10, 1);
}

TEST(Now, AKeySeesItsOwnRequestsAndTheNumberOfOthers) {
  World world;
  RequestLog theirs = LogOf("bob");
  theirs.queued = std::chrono::milliseconds(1);
  theirs.prompt_tokens = 4711;
  world.running = {LogOf("alice"), theirs, LogOf("bob")};
  world.recent.Add(theirs, Clock::now());
  world.models.resize(1);
  const json alice = world.Now({.key = "alice"});
  ASSERT_EQ(alice["requests"].size(), 1);
  EXPECT_EQ(alice["requests"][0]["id"], "r-alice");
  EXPECT_EQ(alice["others"], json({{"running", 1}, {"waiting", 1}}));
  EXPECT_TRUE(alice["recent"].empty());
  EXPECT_EQ(alice.dump().find("4711"), std::string::npos);
  EXPECT_FALSE(alice["models"][0].contains("prefix_bytes"));
  const json admin = world.Now({.key = "root", .admin = true});
  EXPECT_EQ(admin["requests"].size(), 3);
  EXPECT_TRUE(admin["models"][0].contains("prefix_bytes"));
  EXPECT_EQ(admin["recent"][0]["prompt_tokens"], 4711);
}

TEST(Now, KeepsTheLastRequestsOnly) {
  World world;
  world.recent.Add(LogOf("", ""), Clock::now());  // of no model
  EXPECT_TRUE(world.recent.entries().empty());
  for (int i = 0; i < 100; ++i) world.recent.Add(LogOf(std::to_string(i)), Clock::now());
  EXPECT_EQ(world.recent.entries().size(), RecentRequests::kMax);
  EXPECT_EQ(world.recent.entries().front().log.key, "99");
}

TEST(NowRoute, AnswersOnceOrStreamsUntilTheDaemonDrains) {
  World world;
  TestDaemon daemon({}, [&world](Router& router) { AddNowRoutes(router, world.sources); });
  EXPECT_EQ(json::parse(daemon.Get("/quire/now").body)["memory_budget_bytes"], 1000);
  testing::RawClient client(daemon.port());
  client.Send("GET /quire/now HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
  std::string seen;
  const auto read_until = [&](const std::string& text) {
    while (seen.find(text) == std::string::npos) seen += client.ReadSome(1);
  };
  read_until("data: {");
  daemon.OnIoThread([&world] { world.running = {LogOf("")}; });
  read_until("\"phase\":\"queued\"");
  daemon.OnIoThread([&world] { world.draining = true; });
  read_until("\r\n0\r\n\r\n");
}

}  // namespace
}  // namespace quire::server
