#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/console/console.h"
#include "server/routes/handlers.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::TestDaemon;

// Caches whose prefixes a test sets. On the I/O thread.
struct Caches {
  bool loaded = true;
  bool draining = false;
  int pid = 7;
  uint64_t version = 1;
  bool busy = false;
  std::chrono::milliseconds delay{0};
  int open = 0, open_max = 0;  // questions
  std::vector<api::ipc::InspectCache> questions;
  CacheSources sources{
      .find_model = [](std::string name, const fair::PartyId&) { return Find(std::move(name)); },
      .inspect = [this](std::string, api::ipc::InspectCache question,
                        int known) { return Inspect(std::move(question), known); },
      .draining = [this] { return draining; }};

  static Awaitable<api::Result<scheduler::ModelSpec>> Find(std::string name) {
    if (name != "a/demo") co_return api::Fail(api::ErrorCode::kNotFound, "model \"" + name + "\" not found");
    co_return scheduler::ModelSpec{.key = "k", .name = "a/demo:latest", .path = {}};
  }
  Awaitable<api::Result<scheduler::CacheView>> Inspect(api::ipc::InspectCache question, int known) {
    questions.push_back(question);
    if (!loaded) co_return api::Fail(api::ErrorCode::kNotFound, "the model is not loaded");
    if (busy)
      co_return api::Fail(api::ErrorCode::kOverloaded, "too many views of this model's cache are open");
    open_max = std::max(open_max, ++open);
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor, delay);
    co_await timer.async_wait(boost::asio::use_awaitable);
    --open;
    scheduler::CacheView view{.runner_pid = pid, .cache = {}};
    view.cache.version = version;
    view.cache.unchanged = known == pid && question.known_version == version;
    if (!view.cache.unchanged) {
      view.cache.nodes.push_back(
          {.id = 3, .to = 40, .kv_bytes = 64, .restore_point = true, .begin = "You are"});
      view.cache.other_keys = 2;
      view.cache.other_nodes = 9;
    }
    co_return view;
  }
};

class CacheRouteTest : public ::testing::Test {
 protected:
  Caches caches_;
};

TEST_F(CacheRouteTest, ShowsThePrefixesOfAModel) {
  TestDaemon daemon({}, [this](Router& router) { AddCacheRoutes(router, caches_.sources); });
  const json cache = json::parse(daemon.Get("/quire/cache/a/demo").body);
  EXPECT_EQ(cache["model"], "a/demo:latest");
  EXPECT_EQ(cache["loaded"], true);
  EXPECT_EQ(cache["nodes"][0]["id"], 3);
  EXPECT_EQ(cache["nodes"][0]["to"], 40);
  EXPECT_EQ(cache["nodes"][0]["kv_bytes"], 64);
  EXPECT_EQ(cache["nodes"][0]["begin"], "You are");
  EXPECT_FALSE(cache["nodes"][0].contains("end"));
  EXPECT_EQ(cache["others"], json({{"keys", 2}, {"nodes", 9}}));
  caches_.loaded = false;
  EXPECT_EQ(json::parse(daemon.Get("/quire/cache/a/demo").body)["loaded"], false);
}

TEST_F(CacheRouteTest, RefusesByName) {
  TestDaemon daemon({}, [this](Router& router) { AddCacheRoutes(router, caches_.sources); });
  EXPECT_EQ(daemon.Get("/quire/cache/none").status, 404);
  EXPECT_EQ(daemon.Get("/quire/cache/").status, 404);
  const auto refused = daemon.Get("/quire/cache/a/demo?tenant=1");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("cache_salt"));
  EXPECT_TRUE(caches_.questions.empty());
}

// The isolation key is that of the client's own requests; only an admin asks for others.
TEST_F(CacheRouteTest, AsksForTheClientsOwnIsolationKey) {
  TestDaemon daemon({}, [this](Router& router) { AddCacheRoutes(router, caches_.sources); });
  const auto keys = KeyRing::Parse(
      "alice inference sha256:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90\n"  // "alice"
      "root admin sha256:4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2\n");     // "root"
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(daemon.Get("/quire/cache/a/demo").status, 200);
  daemon.OnIoThread([&] { daemon.server().SetKeys(*keys); });
  EXPECT_EQ(daemon.Get("/quire/cache/a/demo").status, 401);
  const std::string alice = "Authorization: Bearer alice\r\n";
  EXPECT_EQ(daemon.Get("/quire/cache/a/demo", alice).status, 200);
  EXPECT_EQ(daemon.Get("/quire/cache/a/demo?cache_salt=s%20t", alice).status, 200);
  EXPECT_EQ(daemon.Get("/quire/cache/a/demo", "Authorization: Bearer root\r\n").status, 200);
  ASSERT_EQ(caches_.questions.size(), 4);
  EXPECT_EQ(caches_.questions[0].isolation, "0:");
  EXPECT_TRUE(caches_.questions[0].others);  // without keys everybody is an admin
  HttpRequest request;
  request.identity = "alice";
  const std::string own = IsolationOf(request, "");
  EXPECT_EQ(caches_.questions[1].isolation, own);
  EXPECT_FALSE(caches_.questions[1].others);
  EXPECT_EQ(caches_.questions[2].isolation, own + "s t");
  EXPECT_NE(caches_.questions[3].isolation, own);
  EXPECT_TRUE(caches_.questions[3].others);
}

// Said to be unloaded, it would be a wrong answer.
TEST_F(CacheRouteTest, OneThatCannotBeAskedIsNotUnloaded) {
  TestDaemon daemon({}, [this](Router& router) { AddCacheRoutes(router, caches_.sources); });
  caches_.busy = true;
  const auto refused = daemon.Get("/quire/cache/a/demo");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("too many views"));
  RawClient client(daemon.port());
  client.Send("GET /quire/cache/a/demo HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
  for (size_t asked = 0; asked < 2;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    daemon.OnIoThread([&] { asked = caches_.questions.size(); });
  }
  daemon.OnIoThread([this] { caches_.busy = false; });
  std::string seen;
  while (seen.find("}\n\n") == std::string::npos) seen += client.ReadSome(1);
  EXPECT_THAT(seen, HasSubstr("\"loaded\":true"));
}

TEST_F(CacheRouteTest, APartyAsksOneQuestionAtATime) {
  TestDaemon daemon({}, [this](Router& router) { AddCacheRoutes(router, caches_.sources); });
  caches_.delay = std::chrono::milliseconds(20);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<RawClient>(daemon.port()));
    clients.back()->Send("GET /quire/cache/a/demo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }
  for (const auto& client : clients) EXPECT_THAT(client->ReadToEnd(), HasSubstr("\"loaded\":true"));
  daemon.OnIoThread([this] { EXPECT_EQ(caches_.open_max, 1); });
}

TEST_F(CacheRouteTest, StreamsEachChangeOnce) {
  TestDaemon daemon({}, [this](Router& router) { AddCacheRoutes(router, caches_.sources); });
  RawClient client(daemon.port());
  client.Send("GET /quire/cache/a/demo HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
  std::string seen;
  const auto read_until = [&](const std::string& text) {
    while (seen.find(text) == std::string::npos) seen += client.ReadSome(1);
    seen.clear();
  };
  read_until("\"begin\":\"You are\"");
  daemon.OnIoThread([this] { caches_.loaded = false; });
  read_until("\"loaded\":false");
  daemon.OnIoThread([this] { caches_.loaded = true; });
  read_until("\"loaded\":true");
  size_t asked = 0;
  daemon.OnIoThread([&] { asked = caches_.questions.size(); });
  // The version is known by now, until another runner starts to count.
  bool known = false;
  while (!known) {
    daemon.OnIoThread([&] { known = caches_.questions.size() > asked + 2; });
  }
  EXPECT_EQ(caches_.questions.back().known_version, 1);
  daemon.OnIoThread([this] { caches_.pid = 8; });
  read_until("data: {");
  daemon.OnIoThread([this] { caches_.draining = true; });
  read_until("\r\n0\r\n\r\n");
}

}  // namespace
}  // namespace quire::server
