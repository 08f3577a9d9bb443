#include "server/store/blob_users.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

namespace quire::server {
namespace {

using fair::PartyNamed;
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

// Two clients ask for the same blob, one makes its model and goes: the other still finds the blob, however
// long ago it asked.
TEST_F(Users, EachClientHasAPromiseOfItsOwn) {
  const BlobUsers::Clock::time_point start{};
  users_.Promise("a", PartyNamed("client"), start);
  users_.Promise("a", PartyNamed("client"), start + minutes(1));
  {
    BlobUsers::Lease create(users_);
    create.Redeem("a", PartyNamed("client"));
  }
  EXPECT_FALSE(Removes("a", start + hours(23)));
  {
    BlobUsers::Lease create(users_);
    create.Redeem("a", PartyNamed("client"));
    EXPECT_FALSE(Removes("a", start + hours(23)));
  }
  EXPECT_TRUE(Removes("a", start + hours(23)));
}

TEST_F(Users, AClientRedeemsItsOwnPromiseFirst) {
  const BlobUsers::Clock::time_point start{};
  users_.Promise("a", PartyNamed("waits"), start);
  users_.Promise("a", PartyNamed("creates"), start);
  const auto create = [&] { BlobUsers::Lease(users_).Redeem("a", PartyNamed("creates")); };
  create();
  users_.Withdraw("a", PartyNamed("creates"));
  EXPECT_FALSE(Removes("a", start));
  users_.Withdraw("a", PartyNamed("waits"));
  EXPECT_TRUE(Removes("a", start));
  // It may have come from another address.
  users_.Promise("a", PartyNamed("uploads"), start);
  create();
  EXPECT_TRUE(Removes("a", start));
}

TEST_F(Users, PromisesEnd) {
  const BlobUsers::Clock::time_point start{};
  users_.Promise("a", PartyNamed("client"), start);
  users_.Promise("b", PartyNamed("client"), start);
  users_.Withdraw("b", PartyNamed("client"));
  EXPECT_TRUE(Removes("b", start));
  EXPECT_FALSE(Removes("a", start + BlobUsers::kPromiseTime));
  EXPECT_TRUE(Removes("a", start + BlobUsers::kPromiseTime + minutes(1)));
}

// A client that asks for many takes back its own, not those of others, and asking costs the same however many
// there are: each of 8,000 blobs was looked at for every question, on the thread of all requests.
TEST_F(Users, EachPartyHasSoManyPromises) {
  const BlobUsers::Clock::time_point start{};
  users_.Promise("other's", PartyNamed("other"), start);
  constexpr int kAsked = 30'000;
  for (int i = 0; i < kAsked; ++i)
    users_.Promise(std::to_string(i), PartyNamed("client"), start + minutes(1));
  EXPECT_FALSE(Removes("other's", start + minutes(2)));
  EXPECT_FALSE(Removes(std::to_string(kAsked - 1), start + minutes(2)));
  EXPECT_FALSE(Removes(std::to_string(kAsked - 8192), start + minutes(2)));
  EXPECT_TRUE(Removes(std::to_string(kAsked - 8193), start + minutes(2)));
  for (int i = 0; i < 40'000; ++i)
    users_.Promise("more", PartyNamed("party " + std::to_string(i)), start + minutes(3));
  EXPECT_FALSE(Removes("more", start + minutes(4)));
  EXPECT_FALSE(Removes("other's", start + minutes(4))) << "of one blob there are 64";
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
  users_.Promise("a", PartyNamed("client"), {});
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
