#include "server/http/handshake_turns.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <string>
#include <vector>

namespace quire::server {
namespace {

namespace asio = boost::asio;

// Steps that end when the test lets them.
class HandshakeTurnsTest : public ::testing::Test {
 protected:
  // A handshake of this many steps of the party that its name begins with.
  std::shared_ptr<HandshakeTurn> Start(const std::string& name, int steps = 1) {
    auto turn = std::make_shared<HandshakeTurn>(turns_, io_.get_executor(), name.substr(0, 1));
    asio::co_spawn(io_, Shake(turn, name, steps), asio::detached);
    Poll();
    return turn;
  }
  // Ends the step that is being computed.
  void EndStep() {
    done_.cancel();
    Poll();
  }
  void Poll() {
    io_.restart();
    io_.poll();
  }

  asio::io_context io_;
  std::vector<std::string> order_;     // of steps, as they begin
  std::vector<std::string> canceled_;  // handshakes
  int computing_ = 0;

 private:
  Awaitable<void> Shake(std::shared_ptr<HandshakeTurn> turn, std::string name, int steps) {
    const std::function<void()> step = [this, &name] { order_.push_back(name); };
    for (int i = 0; i < steps; ++i) {
      const bool computed = co_await turn->Compute(step);
      if (!computed) {
        canceled_.push_back(name);
        co_return;
      }
    }
  }
  Awaitable<void> Compute(const std::function<void()>& step) {
    step();
    EXPECT_EQ(++computing_, 1) << "one step at a time";
    co_await done_.async_wait(kTuple);
    --computing_;
  }

  asio::steady_timer done_{io_, std::chrono::steady_clock::time_point::max()};
  HandshakeTurns turns_{[this](const std::function<void()>& step) { return Compute(step); }};
};

TEST_F(HandshakeTurnsTest, PartiesTakeTurns) {
  for (const char* name : {"a1", "a2", "a3", "a4", "b1", "b2", "c1"}) Start(name);
  for (int i = 0; i < 7; ++i) EndStep();
  EXPECT_EQ(order_, (std::vector<std::string>{"a1", "a2", "b1", "c1", "a3", "b2", "a4"}));
}

// A handshake that asks for its next step at once goes behind the other parties.
TEST_F(HandshakeTurnsTest, TheNextStepWaitsForAnotherTurn) {
  Start("a1", 3);
  Start("b1", 2);
  for (int i = 0; i < 5; ++i) EndStep();
  EXPECT_EQ(order_, (std::vector<std::string>{"a1", "b1", "a1", "b1", "a1"}));
}

// The loop goes on with others' work while a step is being computed elsewhere.
TEST_F(HandshakeTurnsTest, AStepKeepsNobodyWaiting) {
  Start("a1");
  bool ran = false;
  asio::post(io_, [&ran] { ran = true; });
  Poll();
  EXPECT_TRUE(ran);
  EXPECT_EQ(computing_, 1);
  EndStep();
  EXPECT_EQ(computing_, 0);
}

TEST_F(HandshakeTurnsTest, WhoIsCanceledLeavesAtOnce) {
  Start("a1");
  const auto waits = Start("a2");
  Start("b1");
  waits->Cancel();
  Poll();
  EXPECT_EQ(canceled_, std::vector<std::string>{"a2"});
  for (int i = 0; i < 3; ++i) EndStep();
  EXPECT_EQ(order_, (std::vector<std::string>{"a1", "b1"}));
}

// Its step is still being computed: nobody else has the turn until that ends.
TEST_F(HandshakeTurnsTest, ACanceledStepEndsFirst) {
  const auto computes = Start("a1");
  Start("b1");
  computes->Cancel();
  Poll();
  EXPECT_EQ(order_, std::vector<std::string>{"a1"});
  EndStep();
  EXPECT_EQ(canceled_, std::vector<std::string>{"a1"});
  EXPECT_EQ(order_, (std::vector<std::string>{"a1", "b1"}));
  EndStep();
}

}  // namespace
}  // namespace quire::server
