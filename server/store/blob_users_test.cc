#include "server/store/blob_users.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

namespace quire::server {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

class Users : public ::testing::Test {
 protected:
  bool Removes(const std::string& blob, BlobUsers::Clock::time_point now = {}) {
    bool removed = false;
    users_.Remove(blob, now, [&removed] { removed = true; });
    return removed;
  }

  BlobUsers users_;
};

TEST_F(Users, WhatIsHeldStays) {
  {
    BlobUsers::Lease one(users_);
    BlobUsers::Lease two(users_);
    one.Add("a");
    two.Add("a");
    one.Release();
    EXPECT_FALSE(Removes("a"));
    EXPECT_TRUE(Removes("b"));
  }
  EXPECT_TRUE(Removes("a"));
}

// Two clients ask for the same blob, one makes its model and goes: the other still finds the blob, however long ago
// it asked.
TEST_F(Users, EachClientHasAPromiseOfItsOwn) {
  const BlobUsers::Clock::time_point start{};
  users_.Promise("a", start);
  users_.Promise("a", start + minutes(1));
  {
    BlobUsers::Lease create(users_);
    create.Redeem("a");
  }
  EXPECT_FALSE(Removes("a", start + hours(23)));
  {
    BlobUsers::Lease create(users_);
    create.Redeem("a");
    EXPECT_FALSE(Removes("a", start + hours(23)));
  }
  EXPECT_TRUE(Removes("a", start + hours(23)));
}

TEST_F(Users, PromisesEnd) {
  const BlobUsers::Clock::time_point start{};
  users_.Promise("a", start);
  users_.Promise("b", start);
  users_.Withdraw("b");
  EXPECT_TRUE(Removes("b", start));
  EXPECT_FALSE(Removes("a", start + BlobUsers::kPromiseTime));
  EXPECT_TRUE(Removes("a", start + BlobUsers::kPromiseTime + minutes(1)));
}

TEST_F(Users, ALookAfterAPromiseSeesARemovalThatDidNotKnowOfIt) {
  std::atomic<bool> there = true;
  std::latch unlinking(1);
  std::latch go_on(1);
  std::thread removal([&] {
    users_.Remove("a", {}, [&] {
      unlinking.count_down();
      go_on.wait();
      there = false;
    });
  });
  unlinking.wait();
  users_.Promise("a", {});
  std::thread look([&] {
    users_.AwaitRemoval();
    EXPECT_FALSE(there);
  });
  go_on.count_down();
  removal.join();
  look.join();
}

}  // namespace
}  // namespace quire::server
