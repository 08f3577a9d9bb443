#include "server/routes/paced_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace quire::server {
namespace {

using ::testing::ElementsAre;

class PacedTurnsTest : public ::testing::Test {
 protected:
  void Start(const std::string& party, const std::string& name) {
    boost::asio::co_spawn(io_, RunOne(*this, party, name), boost::asio::detached);
  }
  static Awaitable<void> RunOne(PacedTurnsTest& test, std::string party, std::string name) {
    PacedTurns::Work work = [&test, &name] {
      test.done_.push_back(name);
      if (name == "throws") throw std::runtime_error(name);
      return name;
    };
    try {
      const auto done = co_await test.turns_.Run(std::move(party), std::move(work));
      if (*done != name) test.done_.emplace_back("another's");
    } catch (const std::runtime_error&) {
      test.done_.emplace_back("thrown");
    }
  }

  boost::asio::io_context io_;
  PacedTurns turns_{io_.get_executor()};
  std::vector<std::string> done_;
};

TEST_F(PacedTurnsTest, PartiesTakeTurns) {
  for (const char* name : {"a1", "a2", "a3", "a4"}) Start("a", name);
  Start("b", "b1");
  io_.run();
  EXPECT_THAT(done_, ElementsAre("a1", "a2", "b1", "a3", "a4")) << "a's turn was before b came";
}

TEST_F(PacedTurnsTest, OtherEventsGoBetween) {
  for (const char* name : {"a1", "a2", "a3"}) Start("a", name);
  size_t rounds = 0, last_done = 0, most = 0;
  std::function<void()> look = [&] {
    ++rounds;
    most = std::max(most, done_.size() - last_done);
    last_done = done_.size();
    if (done_.size() < 3) boost::asio::post(io_, look);
  };
  look();
  io_.run();
  EXPECT_EQ(most, 1U) << "two pieces of work without another event between them";
  EXPECT_GE(rounds, 3U);
}

TEST_F(PacedTurnsTest, WorkThatThrowsEndsItsTurn) {
  Start("a", "throws");
  Start("a", "a2");
  io_.run();
  EXPECT_THAT(done_, ElementsAre("throws", "thrown", "a2"));
}

}  // namespace
}  // namespace quire::server
