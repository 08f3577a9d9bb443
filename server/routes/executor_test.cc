// Work of one kind never waits for work of another.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <latch>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/base/sha256.h"
#include "server/http/party.h"
#include "server/routes/blocking.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::PostBytes;
using testing::RawClient;
using testing::TestDaemon;

constexpr std::string_view kPoolChat =
    R"({"model":"demo","stream":false,"messages":[{"role":"user","content":"hi"}]})";

// Parties take turns however many tasks each has, and one party's tasks keep their order.
TEST(Executor, PartiesTakeTurns) {
  Executor executor(1);
  WorkKind pool = executor.AddKind(1);
  std::latch begun(1), go(1);
  pool.Post([&] {
    begun.count_down();
    go.wait();
  });
  begun.wait();
  std::vector<std::string> order;  // the one thread's
  for (const char* task : {"a1", "a2", "a3", "a4", "b1", "b2", "c1"}) {
    pool.Post([&order, task] { order.emplace_back(task); }, PartyOf({}, std::string(task, 1)));
  }
  go.count_down();
  executor.Join();
  EXPECT_EQ(order, (std::vector<std::string>{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}));
}

// Tasks see that nobody waits for them, also those that begin later.
TEST(Executor, TasksSeeThatTheyShouldStop) {
  Executor executor(1);
  WorkKind pool = executor.AddKind(1);
  std::latch begun(1), go(1);
  std::vector<bool> seen;  // the one thread's
  pool.Post([&] {
    seen.push_back(api::StopScope::requested());
    begun.count_down();
    go.wait();
    seen.push_back(api::StopScope::requested());
  });
  pool.Post([&] { seen.push_back(api::StopScope::requested()); });
  begun.wait();
  executor.Stop();
  go.count_down();
  executor.Join();
  EXPECT_EQ(seen, (std::vector<bool>{false, true, true}));
}

// What is posted too late is destroyed when the owner says so, and what it refers to is still there.
TEST(Executor, TasksThatComeTooLateAreDropped) {
  Executor executor(1);
  WorkKind pool = executor.AddKind(1);
  executor.Join();
  const auto kept = std::make_shared<int>(1);
  pool.Post([kept] { ADD_FAILURE() << "it ran"; });
  EXPECT_EQ(kept.use_count(), 2);
  executor.DropWaiting();
  EXPECT_EQ(kept.use_count(), 1);
}

// A party whose task runs waits for one that has none.
TEST(Executor, APartyThatRunsNothingIsNext) {
  Executor executor(3);
  WorkKind pool = executor.AddKind(3);
  std::latch begun(3), go(1), first(1);
  for (const char* party : {"a", "c", "d"}) {
    pool.Post(
        [&, &until = *party == 'd' ? first : go] {
          begun.count_down();
          until.wait();
        },
        PartyOf({}, party));
  }
  begun.wait();
  std::vector<std::string> order;
  std::latch done(2);
  for (const char* task : {"a1", "b1"}) {
    pool.Post(
        [&, task] {
          order.emplace_back(task);
          done.count_down();
        },
        PartyOf({}, std::string(task, 1)));
  }
  first.count_down();  // the other threads still run tasks of "a" and "c"
  done.wait();
  go.count_down();
  executor.Join();
  EXPECT_EQ(order, (std::vector<std::string>{"b1", "a1"}));
}

// However many tasks a party has, another that comes finds a thread; and all of its tasks are run once it
// may.
TEST(Executor, OnePartyLeavesAThreadForTheNext) {
  constexpr int kTasks = 64;
  for (const size_t threads : {size_t{2}, size_t{3}}) {
    Executor executor(threads);
    WorkKind pool = executor.AddKind(threads);
    const auto held = static_cast<int>(threads) - 1;
    std::latch begun(held), go(1);
    for (int i = 0; i < held; ++i) {
      pool.Post(
          [&] {
            begun.count_down();
            go.wait();
          },
          PartyOf({}, "a"));
    }
    begun.wait();
    std::atomic<int> run = 0;
    for (int i = 0; i < kTasks; ++i) pool.Post([&run] { ++run; }, PartyOf({}, "a"));
    for (int i = 0; i < 8; ++i) {
      std::latch done(1);
      pool.Post([&done] { done.count_down(); }, PartyOf({}, "b"));
      done.wait();
    }
    EXPECT_EQ(run, 0) << threads << " threads";
    go.count_down();
    executor.Join();
    EXPECT_EQ(run, kTasks) << threads << " threads";
  }
}

// Whoever has as many tasks has as many turns by its weight of the processor's time.
TEST(Executor, SharesProcessorTimeByWeight) {
  Executor executor(1);
  WorkKind pool = executor.AddKind(1);
  std::latch go(1);
  pool.Post([&go] { go.wait(); });
  std::string order;  // the one thread's
  const auto compute = [&order](char party) {
    order += party;
    const auto processor_time = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    for (const double end = processor_time() + 0.002; processor_time() < end;) {
    }
  };
  for (int i = 0; i < 100; ++i) {
    pool.Post([&compute] { compute('a'); }, PartyOf("a", ""));
    pool.Post([&compute] { compute('b'); }, PartyOf("b", "", 3));
  }
  go.count_down();
  executor.Join();
  EXPECT_NEAR(static_cast<double>(std::count(order.begin(), order.begin() + 100, 'b')), 75, 5);
}

// There is nobody to keep a thread free for: a pool of the store runs nothing but the daemon's own work.
TEST(Executor, WorkOfNoPartyHasAllThreads) {
  Executor executor(2);
  WorkKind pool = executor.AddKind(2);
  std::latch both(2);
  for (int i = 0; i < 2; ++i) pool.Post([&both] { both.arrive_and_wait(); });
  executor.Join();
  EXPECT_TRUE(both.try_wait());
}

// A daemon whose model "demo" is in memory: its manifest is old, and a chat has looked it up.
class Pools : public ::testing::Test {
 protected:
  Pools() {
    testing::Age(daemon_.store().ManifestPath("demo"));
    daemon_.backend().script.events = {api::Finished{}};
    Chat();
  }
  ~Pools() override {
    if (!free_.try_wait()) free_.count_down();
  }

  // Keeps a pool's threads until the end of the test.
  void Block(WorkKind pool, int threads, const fair::PartyId& party = {}) {
    auto taken = std::make_shared<std::latch>(threads);
    for (int i = 0; i < threads; ++i) {
      auto work = [this, taken] {
        taken->count_down();
        free_.wait();
      };
      pool.Post(work, party);
    }
    taken->wait();
  }
  void Chat() { EXPECT_EQ(daemon_.Post("/api/chat", kPoolChat).status, 200); }
  // Those that are with their handlers.
  size_t Requests() {
    size_t seen = 0;
    daemon_.OnIoThread([&] { daemon_.server().ForEachRequest([&seen](const RequestLog&) { ++seen; }); });
    return seen;
  }
  void WaitForRequests(size_t count) {
    while (Requests() < count) std::this_thread::yield();
  }
  void ExpectToWaitForTheirParty(WorkKind pool, const std::vector<std::string>& requests, int status) {
    Block(pool, 1, own_);
    std::vector<std::unique_ptr<RawClient>> clients;
    for (const std::string& request : requests) {
      clients.push_back(std::make_unique<RawClient>(daemon_.port()));
      clients.back()->Send(request);
    }
    WaitForRequests(requests.size());
    while (pool.WaitingOf(own_) < requests.size() && Requests() == requests.size()) std::this_thread::yield();
    EXPECT_EQ(Requests(), requests.size()) << "one was answered on the thread that is not its party's";
    free_.count_down();
    for (const auto& client : clients) EXPECT_EQ(client->Read().status, status);
  }

  const fair::PartyId own_ = PartyOf("", "127.0.0.1:1");  // the tests' clients
  std::latch free_{1};
  TestDaemon daemon_;  // joins its pools before the latch goes
};

// As std::bad_alloc does.
TEST(RunBlocking, WhatTheWorkThrowsReachesItsCoroutine) {
  Executor executor(1);
  WorkKind pool = executor.AddKind(1);
  boost::asio::io_context io;
  std::string caught;
  const auto run = [&]() -> Awaitable<void> {
    auto work = []() -> int { throw std::runtime_error("no memory"); };
    try {
      const int value = co_await RunBlocking(pool, std::move(work));
      caught = std::to_string(value);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    auto more = [] { return 7; };
    const int value = co_await RunBlocking(pool, std::move(more));
    caught += std::to_string(value);
  };
  boost::asio::co_spawn(io, run, boost::asio::detached);
  io.run();
  executor.Join();
  EXPECT_EQ(caught, "no memory7");
}

TEST_F(Pools, AChatOfAKnownModelWaitsForNoOtherWork) {
  WorkPools& pools = daemon_.pools();
  Block(pools.cpu, 2);
  Block(pools.reads, 2);
  Block(pools.blobs, 2);
  Block(pools.edits, 1);
  Chat();
}

TEST_F(Pools, TheStoresLockHoldsUpNoChatAndNoList) {
  const fs::path path = daemon_.store().root() / ".quire-lock";
  const api::FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(daemon_.port()));
    clients.back()->Send(
        PostBytes("/api/copy", fmt::format(R"({{"source":"demo","destination":"copy{}"}})", i)));
  }
  WaitForRequests(clients.size());
  Chat();
  EXPECT_EQ(json::parse(daemon_.Get("/api/tags").body)["models"].size(), 1u);
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  for (const auto& client : clients) EXPECT_EQ(client->Read().status, 200);
}

// A client that asks on all its connections waits for itself: its requests wait for the thread that its party
// may have.
TEST_F(Pools, EmbeddingsAndRankingsTakeTheTurnOfTheirParty) {
  std::vector<std::string> requests;
  for (const char* path : {"/api/embed", "/v1/embeddings", "/v1/rerank", "/v2/rerank"}) {
    requests.push_back(PostBytes(path, std::string(size_t{256} << 10, ' ')));
  }
  ExpectToWaitForTheirParty(daemon_.pools().cpu, requests, 400);
}

TEST_F(Pools, ListsTakeTheTurnOfTheirParty) {
  std::vector<std::string> requests;
  for (const char* path : {"/api/tags", "/v1/models", "/models", "/api/ps"}) {
    requests.push_back(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
  }
  ExpectToWaitForTheirParty(daemon_.pools().reads, requests, 200);
}

TEST_F(Pools, UploadsTakeTheTurnOfTheirParty) {
  const std::vector<std::string> requests{PostBytes("/api/blobs/sha256:" + api::Sha256Of("x"), "x"),
                                          PostBytes("/api/blobs/sha256:" + api::Sha256Of("y"), "y")};
  ExpectToWaitForTheirParty(daemon_.pools().blobs, requests, 201);
}

// Each look takes a process: a list of 500 models that no runner can read took one for each, every time.
TEST_F(Pools, WhatCannotBeDescribedIsLookedAtOnceAMinute) {
  daemon_.backend().script.inspected.error = api::Error{api::ErrorCode::kBadModel, "truncated"};
  for (const char* list : {"/v1/models", "/api/tags", "/v1/models"}) {
    EXPECT_EQ(daemon_.Get(list).status, 200);
  }
  EXPECT_EQ(daemon_.backend().seen.inspections.size(), 1u);
  daemon_.OnIoThread([this] { daemon_.backend().script.inspected.error.reset(); });
  EXPECT_EQ(daemon_.Post("/api/show", R"({"model":"demo"})").status, 200)
      << "who asks for one gets another look";
}

TEST_F(Pools, OneDescriptionServesAllModelsOfTheSameWeights) {
  for (int i = 0; i < 5; ++i) {
    const auto layers = json::array(
        {daemon_.store().Layer("application/vnd.ollama.image.model", "GGUF weights"),
         daemon_.store().Layer("application/vnd.ollama.image.system", fmt::format("You are {}.", i))});
    testing::WriteFile(daemon_.store().ManifestPath(fmt::format("m{}", i)),
                       daemon_.store().Manifest(layers).dump());
  }
  EXPECT_EQ(json::parse(daemon_.Get("/api/tags").body)["models"].size(), 6u);
  EXPECT_EQ(daemon_.backend().seen.inspections.size(), 1u);
}

}  // namespace
}  // namespace quire::server
