#include "server/http/body_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
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

class BodyTurnsTest : public ::testing::Test {
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
  std::shared_ptr<BodyTurns> turns_ = std::make_shared<BodyTurns>();
  std::vector<std::string> order_;
  std::vector<std::string> canceled_;

 private:
  Awaitable<void> Copy(std::string name) {
    const bool called = co_await turns_->Wait(name.substr(0, 1));
    (called ? order_ : canceled_).push_back(name);
  }
};

TEST_F(BodyTurnsTest, AFewPiecesAreCopiedInOneTurnOfTheThread) {
  for (int i = 0; i < 100; ++i) Start("a");
  size_t copied = 0;
  for (int turns = 0; copied < 100 && turns < 1000; ++turns) {
    const size_t in_turn = NextTurn().size();
    EXPECT_LE(in_turn, size_t{BodyTurns::kPiecesTogether});
    copied += in_turn;
  }
  EXPECT_EQ(copied, 100u);
}

TEST_F(BodyTurnsTest, PartiesTakeTurns) {
  for (const char* name : {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "b1", "c1"}) Start(name);
  std::vector<std::string> all;
  while (all.size() < 10) std::ranges::copy(NextTurn(), std::back_inserter(all));
  EXPECT_EQ(all, (std::vector<std::string>{"a1", "a2", "a3", "a4", "a5", "b1", "c1", "a6", "a7", "a8"}));
}

TEST_F(BodyTurnsTest, OneThatIsCanceledLeaves) {
  for (const char* name : {"a1", "a2", "a3", "a4"}) Start(name);
  StartCancelable("a5");
  Start("a6");
  NextTurn();
  cancel_.emit(asio::cancellation_type::all);
  std::vector<std::string> all;
  for (int turns = 0; turns < 10; ++turns) std::ranges::copy(NextTurn(), std::back_inserter(all));
  EXPECT_EQ(canceled_, std::vector<std::string>{"a5"});
  EXPECT_EQ(all, std::vector<std::string>{"a6"});
}

// Bodies that are all there, on a thread that has nothing else to do.
TEST(BodyTurns, LargeBodiesLeaveTheThreadToOthers) {
  constexpr size_t kBodies = 40;
  constexpr size_t kBytes = size_t{100} << 10;
  constexpr size_t kPieces = kBodies * (kBytes >> 14);
  TestServer server;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::promise<void> answered;
  size_t turns = 0;
  std::function<void()> count = [&] {
    ++turns;
    if (server.server().sessions() == 0) return answered.set_value();
    asio::post(server.executor(), count);
  };
  for (size_t i = 0; i < kBodies; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Send(
        "POST /silent HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(kBytes) + "\r\n\r\n");
  }
  for (size_t accepted = 0; accepted < kBodies;) {
    server.OnIoThread([&] { accepted = server.server().sessions(); });
  }
  server.OnIoThread([&] {
    for (const auto& client : clients) {
      client->Send(std::string(kBytes, 'b'));
      client->FinishSending();
    }
    count();
  });
  answered.get_future().wait();
  EXPECT_GE(turns, kPieces / BodyTurns::kPiecesTogether);
}

}  // namespace
}  // namespace quire::server
