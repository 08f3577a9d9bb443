#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/console/change_stream.h"
#include "server/console/console.h"
#include "server/console/shared_now.h"
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

// What another client asked for is not visible: its prefix counts as an unknown one.
TEST(Now, AnotherClientsPrefixCountsAsCold) {
  World world;
  RequestLog log = LogOf("alice");
  log.queued = std::chrono::milliseconds(5);
  log.miss = "salt";
  world.running = {log};
  world.recent.Add(log, Clock::now());
  for (const Viewer& viewer : {Viewer{.key = "alice"}, Viewer{.key = "", .admin = true}}) {
    const json now = world.Now(viewer);
    EXPECT_EQ(now["requests"][0]["miss"], "cold");
    EXPECT_EQ(now["recent"][0]["miss"], "cold");
  }
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
  EXPECT_EQ(alice["viewer"], json({{"key", "alice"}, {"admin", false}}));
  EXPECT_EQ(alice["requests"][0]["id"], "r-alice");
  EXPECT_EQ(alice["others"], json({{"running", 1}, {"waiting", 1}}));
  EXPECT_TRUE(alice["recent"].empty());
  EXPECT_EQ(alice.dump().find("4711"), std::string::npos);
  EXPECT_FALSE(alice["models"][0].contains("prefix_bytes"));
  EXPECT_FALSE(alice["models"][0].contains("resident_bytes"));
  const json admin = world.Now({.key = "root", .admin = true});
  EXPECT_EQ(admin["requests"].size(), 3);
  EXPECT_TRUE(admin["models"][0].contains("prefix_bytes"));
  EXPECT_TRUE(admin["models"][0].contains("resident_bytes"));
  EXPECT_EQ(admin["recent"][0]["prompt_tokens"], 4711);
}

// An excerpt of a prompt is for its own isolation key: not for an admin, not for the same key with another
// salt.
TEST(Now, TheTextOfADivergenceIsForItsOwnKeyOnly) {
  World world;
  RequestLog log = LogOf("alice");
  log.queued = std::chrono::milliseconds(10);
  log.isolation = "5:alice";
  log.divergence = api::Divergence{.at = 7, .shared = "Today is", .prompt = " Sunday", .cached = " Monday"};
  log.prompt_build = std::chrono::milliseconds(2);
  log.prefix_restore = std::chrono::milliseconds(1);
  world.running = {log};
  world.recent.Add(log, Clock::now());
  const json own = world.Now({.key = "alice", .isolation = "5:alice"});
  for (const char* list : {"requests", "recent"}) {
    EXPECT_EQ(own[list][0]["divergence"],
              json({{"at", 7}, {"shared", "Today is"}, {"prompt", " Sunday"}, {"cached", " Monday"}}));
    EXPECT_EQ(own[list][0]["template_ms"], 2);
    EXPECT_EQ(own[list][0]["fetch_ms"], 1);
  }
  for (const Viewer& other : {Viewer{.key = "root", .admin = true, .isolation = "4:root"},
                              Viewer{.key = "alice", .admin = false, .isolation = "5:alicesalt"}}) {
    const json seen = world.Now(other);
    EXPECT_EQ(seen["requests"].size(), 1);
    EXPECT_EQ(seen.dump().find("Sunday"), std::string::npos);
    EXPECT_EQ(seen.dump().find("Monday"), std::string::npos);
  }
}

TEST(Now, ShowsWhatTheEnginesSay) {
  World world;
  RequestLog prefills = LogOf("alice");
  prefills.queued = std::chrono::milliseconds(1);
  prefills.prompt_tokens = 1000;
  prefills.cached_tokens = 200;
  RequestLog waits = LogOf("bob");
  world.running = {prefills, waits};
  world.models.resize(1);
  world.models[0].runner_pid = 3;
  scheduler::EngineView view{.spec = {}, .runner_pid = 3, .engine = {}, .owners = {}};
  view.engine.steps = 9;
  view.engine.prefill_tokens = 64;
  view.engine.step_ns = 2'500'000;
  view.engine.sequences = {
      {.prompt_tokens = 1000, .computed_tokens = 600, .prefill_ns = 2'000'000'000, .virtual_time = 300},
      {.wait = api::ipc::WaitReason::kPlace, .prompt_tokens = 50, .virtual_time = 200}};
  view.owners = {{.exchange = "r-alice", .weight = 2}, {.exchange = "r-bob", .weight = 1}};
  world.sources.engines = [view] { return std::vector{view}; };
  const json admin = world.Now({.key = "root", .admin = true});
  // 400 tokens in 2 s, and 400 are left.
  EXPECT_EQ(admin["requests"][0]["prefill"],
            json({{"computed_tokens", 600}, {"prompt_tokens", 1000}, {"remaining_ms", 2000.0}}));
  EXPECT_EQ(admin["requests"][1]["wait"], "place");
  EXPECT_EQ(admin["models"][0]["engine"]["prefill_tokens"], 64);
  EXPECT_EQ(admin["models"][0]["engine"]["step_ms"], 2.5);
  ASSERT_EQ(admin["shares"].size(), 2);
  EXPECT_EQ(admin["shares"][0],
            json({{"key", "alice"}, {"weight", 2}, {"running", 1}, {"waiting", 0}, {"virtual_time", 300}}));
  const json bob = world.Now({.key = "bob"});
  // Its virtual time would be that of the others, whose tokens it counts.
  EXPECT_EQ(bob["shares"], json::array({{{"key", "bob"}, {"weight", 1}, {"running", 0}, {"waiting", 1}}}));
  EXPECT_FALSE(bob["models"][0].contains("engine"));
}

TEST(Now, KeepsTheLastRequestsOnly) {
  World world;
  world.recent.Add(LogOf("", ""), Clock::now());  // of no model
  EXPECT_TRUE(world.recent.entries().empty());
  for (int i = 0; i < 100; ++i) world.recent.Add(LogOf(std::to_string(i)), Clock::now());
  EXPECT_EQ(world.recent.entries().size(), RecentRequests::kMax);
  EXPECT_EQ(world.recent.entries().front().log.key, "99");
}

TEST(SharedNow, IsEncodedOnceForAllStreamsOfAViewer) {
  World world;
  int encoded = 0;
  world.sources.memory_budget_bytes = [&encoded] { return ++encoded; };
  SharedNow shared(world.sources, std::chrono::milliseconds(250));
  const Clock::time_point begin = Clock::now();
  const auto first = shared.BodyFor({.key = "alice"}, begin, false);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(shared.BodyFor({.key = "alice"}, begin + std::chrono::milliseconds(i), false), first);
  }
  EXPECT_EQ(encoded, 1);
  EXPECT_NE(*shared.BodyFor({.key = "bob"}, begin, false), *first);
  EXPECT_NE(*shared.BodyFor({.key = "alice", .admin = true}, begin, false), *first);
  EXPECT_EQ(encoded, 3);
  // What a page shows of prompts is its own client's.
  EXPECT_NE(shared.BodyFor({.key = "alice", .isolation = "salt"}, begin, false), first);
  EXPECT_EQ(encoded, 4);
  const auto all = shared.BodyFor({.key = "alice"}, begin, true);
  world.recent.Add(LogOf("alice"), begin);
  EXPECT_NE(shared.BodyFor({.key = "alice"}, begin, true), all) << "a request has ended since";
  EXPECT_NE(*shared.BodyFor({.key = "alice"}, begin + std::chrono::milliseconds(250), false), *first);
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
  read_until("\"recent\":[]");
  seen.clear();
  daemon.OnIoThread([&world] { world.running = {LogOf("")}; });
  read_until("\"phase\":\"queued\"");
  EXPECT_EQ(seen.find("\"recent\""), std::string::npos);  // as it was
  daemon.OnIoThread([&world] { world.recent.Add(LogOf("ended"), Clock::now()); });
  read_until("\"id\":\"r-ended\"");
  daemon.OnIoThread([&world] { world.draining = true; });
  read_until("\r\n0\r\n\r\n");
}

// A stream that ends gives its place back.
TEST(NowRoute, OneClientHasABoundedNumberOfStreams) {
  World world;
  TestDaemon daemon({}, [&world](Router& router) { AddNowRoutes(router, world.sources); });
  constexpr std::string_view kStream =
      "GET /quire/now HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
  std::vector<std::unique_ptr<testing::RawClient>> clients;
  for (uint64_t i = 0; i < kStreamLimits.party; ++i) {
    clients.push_back(std::make_unique<testing::RawClient>(daemon.port()));
    clients.back()->Send(kStream);
    std::string seen;
    while (seen.find("data: {") == std::string::npos) seen += clients.back()->ReadSome(1);
  }
  testing::RawClient late(daemon.port());
  late.Send(kStream);
  const testing::RawResponse refused = late.Read();
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.body.find("too many open event streams of this client"), std::string::npos);
  EXPECT_EQ(daemon.Get("/quire/now").status, 200) << "one look is no stream";
  daemon.OnIoThread([&world] { world.draining = true; });
  for (const auto& client : clients) {
    std::string seen;
    while (seen.find("\r\n0\r\n\r\n") == std::string::npos) seen += client->ReadSome(1);
  }
  daemon.OnIoThread([&world] { world.draining = false; });
  late.Send(kStream);
  std::string seen;
  while (seen.find("data: {") == std::string::npos) seen += late.ReadSome(1);
}

}  // namespace
}  // namespace quire::server
