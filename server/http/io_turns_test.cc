#include "server/http/io_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using testing::RawClient;
using testing::TestServer;

class IoTurnsTest : public ::testing::Test {
 protected:
  // A body of one piece, of the party that its name begins with.
  void Start(const std::string& name) { asio::co_spawn(io_, Copy(name), asio::detached); }
  void StartCancelable(const std::string& name) {
    asio::co_spawn(io_, Copy(name), asio::bind_cancellation_slot(cancel_.slot(), asio::detached));
  }
  // What is copied before the thread does anything else that is ready.
  std::vector<std::string> NextTurn() {
    order_.clear();
    io_.restart();
    bool ended = false;
    asio::post(io_, [&ended] { ended = true; });
    while (!ended) io_.run_one();
    return order_;
  }

  asio::io_context io_;
  asio::cancellation_signal cancel_;
  std::shared_ptr<IoTurns> turns_ = std::make_shared<IoTurns>(IoTurns::Pace{.together = 4});
  std::vector<std::string> order_;
  std::vector<std::string> canceled_;

 protected:
  fair::PartyTable table_;

 private:
  Awaitable<void> Copy(std::string name) {
    const auto turn = co_await turns_->Wait(table_.Intern(name.substr(0, 1)));
    (turn ? order_ : canceled_).push_back(name);
  }
};

TEST_F(IoTurnsTest, AFewPiecesAreCopiedInOneTurnOfTheThread) {
  for (int i = 0; i < 100; ++i) Start("a");
  size_t copied = 0;
  for (int turns = 0; copied < 100 && turns < 1000; ++turns) {
    const size_t in_turn = NextTurn().size();
    EXPECT_LE(in_turn, 4U);
    copied += in_turn;
  }
  EXPECT_EQ(copied, 100u);
}

TEST_F(IoTurnsTest, PartiesTakeTurns) {
  for (const char* name : {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "b1", "c1"}) Start(name);
  std::vector<std::string> all;
  while (all.size() < 10) std::ranges::copy(NextTurn(), std::back_inserter(all));
  EXPECT_EQ(all, (std::vector<std::string>{"a1", "a2", "a3", "a4", "a5", "b1", "c1", "a6", "a7", "a8"}));
}

// It has not been called when it leaves.
TEST_F(IoTurnsTest, OneThatIsCanceledLeaves) {
  for (const char* name : {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"}) Start(name);
  StartCancelable("a10");
  Start("a11");
  EXPECT_EQ(NextTurn(), (std::vector<std::string>{"a1", "a2", "a3", "a4"}));
  cancel_.emit(asio::cancellation_type::all);
  std::vector<std::string> all;
  for (int turns = 0; turns < 10; ++turns) std::ranges::copy(NextTurn(), std::back_inserter(all));
  EXPECT_EQ(canceled_, std::vector<std::string>{"a10"});
  EXPECT_EQ(all, (std::vector<std::string>{"a5", "a6", "a7", "a8", "a9", "a11"}));
}

TEST_F(IoTurnsTest, ThoseThatWaitMayEndWithTheirLoop) {
  {
    asio::io_context ends;
    for (int i = 0; i < 8; ++i) {
      const auto wait = [this]() -> Awaitable<void> { co_await turns_->Wait(table_.Intern("a")); };
      asio::co_spawn(ends, wait, asio::detached);
    }
    ends.run_for(std::chrono::seconds(0));
  }
  turns_ = nullptr;
}

// A round waits for others four times as long as the last turn took.
TEST(IoTurns, TextsLeaveTheThreadToOthers) {
  asio::io_context io;
  const auto turns = std::make_shared<IoTurns>(IoTurns::kText);
  fair::PartyTable table;
  size_t done = 0, rounds = 0, last_done = 0, most = 0;
  const auto write = [&](std::string party) -> Awaitable<void> {
    const auto turn = co_await turns->Wait(table.Intern(party));
    ++done;
  };
  for (int i = 0; i < 3; ++i) asio::co_spawn(io, write("a"), asio::detached);
  std::function<void()> look = [&] {
    ++rounds;
    most = std::max(most, done - last_done);
    last_done = done;
    if (done < 3) asio::post(io, look);
  };
  look();
  io.run();
  EXPECT_EQ(most, 1U) << "two turns without another event between them";
  EXPECT_GE(rounds, 3U);
}

// Bodies that are all there, on a thread that has nothing else to do. How many turns of the thread they take.
size_t TurnsFor(size_t bodies, const std::string& field, const std::string& body) {
  TestServer server;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::promise<void> answered;
  size_t turns = 0;
  std::function<void()> count = [&] {
    ++turns;
    if (server.server().sessions() == 0) return answered.set_value();
    asio::post(server.executor(), count);
  };
  for (size_t i = 0; i < bodies; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Send("POST /silent HTTP/1.1\r\nHost: localhost\r\n" + field + "\r\n\r\n");
  }
  for (size_t accepted = 0; accepted < bodies;) {
    server.OnIoThread([&] { accepted = server.server().sessions(); });
  }
  server.OnIoThread([&] {
    for (const auto& client : clients) {
      client->Send(body);
      client->FinishSending();
    }
    count();
  });
  answered.get_future().wait();
  return turns;
}

TEST(IoTurns, LargeBodiesLeaveTheThreadToOthers) {
  constexpr size_t kBytes = size_t{200} << 10;
  constexpr size_t kPieces = 6;  // of one, at least, that wait
  const std::string body(kBytes, 'b');
  EXPECT_GE(TurnsFor(40, "Content-Length: " + std::to_string(kBytes), body), 40 * kPieces / 4);
  EXPECT_GE(TurnsFor(40, "Transfer-Encoding: chunked", "32000\r\n" + body + "\r\n0\r\n\r\n"),
            40 * kPieces / 4);
}

// The last that comes is the only one of its address.
TEST(IoTurns, AddressesTakeTurns) {
  const std::string body(size_t{200} << 10, 'b');
  TestServer server;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (size_t i = 0; i < 41; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port(), i < 40 ? "127.0.0.1" : "127.0.0.2"));
    clients.back()->Send("POST /silent HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                         std::to_string(body.size()) + "\r\n\r\n");
  }
  server.OnIoThread([&] {
    for (const auto& client : clients) {
      client->Send(body);
      client->FinishSending();
    }
  });
  const std::vector<RequestLog> logs = server.WaitForLogs();
  ASSERT_EQ(logs.size(), 41u);
  EXPECT_TRUE(logs.front().client.starts_with("127.0.0.2")) << logs.front().client;
}

}  // namespace
}  // namespace quire::server
