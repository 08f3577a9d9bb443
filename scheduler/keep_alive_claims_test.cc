// What a party says of a model's stay holds for that party: pins and unloads do not reach others.
#include "scheduler/keep_alive_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "scheduler/testing/scheduler_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr KeepAliveClaim kPin{kNeverExpires};
constexpr KeepAliveClaim kPinOfAdmin{kNeverExpires, /*by_admin=*/true};

class SchedulerClaimsTest : public SchedulerTest {
 protected:
  void EnqueueOf(const std::string& party, uint64_t id, const std::string& key,
                 std::optional<KeepAliveClaim> claim = {}) {
    ASSERT_TRUE(scheduler().Enqueue(Id(id), key, claim, kStart, {.party = fair::PartyNamed(party)}));
  }
  // A request of the party loads the model and ends.
  void UseOnce(const std::string& party, uint64_t id, const std::string& key,
               std::optional<KeepAliveClaim> claim = {}) {
    EnqueueOf(party, id, key, claim);
    ASSERT_THAT(LoadsOf(Plan()), ElementsAre(key));
    scheduler().LoadDone(key, kStart);
    ASSERT_THAT(Plan().admit, ElementsAre(Id(id)));
    scheduler().Remove(Id(id), kStart);
  }
  // As the dispatcher does when a runner that was to stop has.
  void Reap(const std::string& key) {
    EXPECT_THAT(scheduler().RunnerStopping(key, ExitCause::kRefused, kStart), IsEmpty());
    scheduler().RunnerReaped(key);
  }
  // Returns what it admits. Two models that are large need more than there is of 100 bytes.
  std::vector<api::RequestId> FinishLoad(const std::string& key, bool large, Time at) {
    if (large) {
      scheduler().OnMemoryEstimate(key, kLarge);
      EXPECT_EQ(Plan(at).grants.size(), 1U);
    }
    scheduler().LoadDone(key, at);
    return Plan(at).admit;
  }

  static constexpr MemoryEstimate kLarge{.fixed_bytes = 80, .cache_bytes = 5, .cache_min_bytes = 5};
};

TEST_F(SchedulerClaimsTest, AKeyOfAnotherWeightHasItsClaims) {
  Make(2);
  UseOnce("bob", 1, "a", kPin);
  scheduler().EndClaim("a", fair::PartyNamed("bob", 2), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
}

TEST_F(SchedulerClaimsTest, APinOfOnePartyMakesRoomForAnother) {
  Make(2);
  UseOnce("bob", 1, "a", kPin);
  UseOnce("bob", 2, "b", kPin);
  EnqueueOf("bob", 3, "c");
  EXPECT_THAT(Plan().reject, ElementsAre(Id(3))) << "its own pins hold for it";
  EnqueueOf("alice", 4, "c");
  const auto plan = Plan();
  EXPECT_THAT(plan.unload, ElementsAre("a")) << "the least recently used";
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("c"));
  EXPECT_THAT(Plan(kStart + hours(1)).unload, IsEmpty()) << "the other pin never expires";
}

TEST_F(SchedulerClaimsTest, APinOfOnePartyGivesMemoryToAnother) {
  Make({.models_max = 4, .memory_bytes = 100});
  EnqueueOf("bob", 1, "a", kPin);
  (void)Plan();
  scheduler().OnMemoryEstimate("a", {.fixed_bytes = 80, .cache_bytes = 5, .cache_min_bytes = 5});
  ASSERT_EQ(Plan().grants.size(), 1U);
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  scheduler().Remove(Id(1), kStart);
  for (const std::string party : {"bob", "alice"}) {
    EnqueueOf(party, 2, "b");
    (void)Plan();
    scheduler().OnMemoryEstimate("b", {.fixed_bytes = 80, .cache_bytes = 5, .cache_min_bytes = 5});
    const auto plan = Plan();
    if (party == "alice") {
      EXPECT_THAT(plan.unload, ElementsAre("a"));
      continue;
    }
    ASSERT_EQ(plan.too_large.size(), 1U);
    EXPECT_EQ(plan.too_large[0].pinned_bytes, 85);
    scheduler().RunnerReaped("b");
  }
}

TEST_F(SchedulerClaimsTest, APinOfAnAdminHoldsForEverybody) {
  Make(1);
  UseOnce("root", 1, "a", kPinOfAdmin);
  EnqueueOf("alice", 2, "a", KeepAlive::zero());
  (void)Plan();
  scheduler().Remove(Id(2), kStart);
  EXPECT_THAT(Plan(kStart + hours(1)).unload, IsEmpty());
  EnqueueOf("alice", 3, "b");
  EXPECT_THAT(Plan().reject, ElementsAre(Id(3)));
}

TEST_F(SchedulerClaimsTest, AnUnloadByOnePartyKeepsAModelThatAnotherUses) {
  Make(1);
  UseOnce("bob", 1, "a");
  EnqueueOf("alice", 2, "a");
  scheduler().EndClaim("a", fair::PartyNamed("bob"), kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2))) << "it waits";
  scheduler().EndClaim("a", fair::PartyNamed("bob"), kStart);
  EnqueueOf("alice", 3, "a");
  EXPECT_THAT(Plan().admit, ElementsAre(Id(3))) << "the model admits requests while one runs";
  scheduler().Remove(Id(2), kStart);
  scheduler().Remove(Id(3), kStart);
  scheduler().EndClaim("a", fair::PartyNamed("bob"), kStart + minutes(4));
  EXPECT_THAT(Plan(kStart + minutes(4)).unload, IsEmpty());
  scheduler().EndClaim("a", fair::PartyNamed("alice"), kStart + minutes(4));
  EXPECT_THAT(Plan(kStart + minutes(4)).unload, ElementsAre("a")) << "nobody else needs it";
}

TEST_F(SchedulerClaimsTest, AClaimThatHasExpiredKeepsNoModel) {
  Make(1);
  UseOnce("alice", 1, "a", seconds(10));
  EnqueueOf("bob", 2, "a", kPin);
  (void)Plan();
  scheduler().Remove(Id(2), kStart);
  EXPECT_THAT(Plan(kStart + hours(1)).unload, IsEmpty());
  scheduler().EndClaim("a", fair::PartyNamed("bob"), kStart + hours(1));
  EXPECT_THAT(Plan(kStart + hours(1)).unload, ElementsAre("a"));
}

TEST_F(SchedulerClaimsTest, AnUnloadWhileItsOwnRequestsRunEndsWithThem) {
  Make(1);
  UseOnce("bob", 1, "a");
  EnqueueOf("bob", 2, "a");
  EnqueueOf("alice", 3, "a", seconds(10));
  (void)Plan();
  scheduler().EndClaim("a", fair::PartyNamed("bob"), kStart);
  scheduler().Remove(Id(3), kStart);
  scheduler().Remove(Id(2), kStart + seconds(20));
  EXPECT_THAT(Plan(kStart + seconds(20)).unload, ElementsAre("a"))
      << "no claim is left, 5 minutes of bob's neither";
}

TEST_F(SchedulerClaimsTest, AnUnloadIsForgottenWhenAnotherPartyComes) {
  Make(1);
  EnqueueOf("bob", 1, "a");
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  scheduler().EndClaim("a", fair::PartyNamed("bob"), kStart);
  EnqueueOf("bob", 2, "a");
  EXPECT_THAT(Plan().admit, IsEmpty()) << "its next request gets another runner";
  EnqueueOf("alice", 3, "a");
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2), Id(3)));
  scheduler().Unload("a");
  EnqueueOf("alice", 4, "a");
  EXPECT_THAT(Plan().admit, IsEmpty()) << "the model was deleted, or unloaded by an admin";
}

TEST_F(SchedulerClaimsTest, TheLongestClaimDecidesWhenAModelExpires) {
  Make(1);
  UseOnce("alice", 1, "a", minutes(2));
  EnqueueOf("bob", 2, "a", KeepAlive::zero());
  (void)Plan();
  scheduler().Remove(Id(2), kStart + seconds(5));
  EXPECT_EQ(Plan(kStart + seconds(5)).wake_at, kStart + minutes(2));
  EXPECT_EQ(scheduler().ReadyModels(kStart + seconds(5))[0].expires_at, kStart + minutes(2));
  EXPECT_THAT(Plan(kStart + minutes(2)).unload, ElementsAre("a"));
}

// A pin whose runner has died takes what is free: another party's model does not leave for it.
TEST_F(SchedulerClaimsTest, APinThatNobodyWaitsForUnloadsNoModelWhenItComesBack) {
  for (const bool by_admin : {false, true}) {
    Make(1);
    UseOnce("bob", 1, "a", by_admin ? kPinOfAdmin : kPin);
    (void)scheduler().RunnerStopping("a", ExitCause::kKilled, kStart);
    EnqueueOf("alice", 2, "b");
    (void)Plan();
    scheduler().RunnerReaped("a");
    ASSERT_THAT(LoadsOf(Plan()), ElementsAre("b"));
    scheduler().LoadDone("b", kStart);
    (void)Plan();
    scheduler().Remove(Id(2), kStart);
    const auto plan = Plan();
    if (by_admin) {
      EXPECT_THAT(plan.unload, ElementsAre("b"));
    } else {
      EXPECT_THAT(plan.unload, IsEmpty());
    }
  }
}

// A client has some of the answer. What took its room is pinned, and comes back when room is free.
TEST_F(SchedulerClaimsTest, APinDoesNotEndAnswersThatHaveBegun) {
  for (const bool memory : {false, true}) {
    SCOPED_TRACE(memory);
    Make({.models_max = memory ? 4 : 1, .memory_bytes = memory ? 100 : 0, .drain_limit = seconds(10)});
    const auto load = [&](const std::string& key, Time at) {
      EXPECT_THAT(LoadsOf(Plan(at)), ElementsAre(key));
      return FinishLoad(key, memory, at);
    };
    EnqueueOf("alice", 1, "a");
    EXPECT_THAT(load("a", kStart), ElementsAre(Id(1)));
    scheduler().Start(Id(1));
    EnqueueOf("root", 2, "b", kPinOfAdmin);
    Time now = kStart + seconds(10);
    if (memory) {
      EXPECT_THAT(LoadsOf(Plan()), ElementsAre("b"));
      scheduler().OnMemoryEstimate("b", kLarge);
    }
    (void)Plan();
    EXPECT_THAT(Plan(now).unload, ElementsAre("a"));
    Reap("a");
    if (memory) {
      EXPECT_EQ(Plan(now).grants.size(), 1U);
      scheduler().LoadDone("b", now);
      EXPECT_THAT(Plan(now).admit, ElementsAre(Id(2)));
    } else {
      EXPECT_THAT(load("b", now), ElementsAre(Id(2)));
    }
    scheduler().Remove(Id(2), now);
    if (memory) scheduler().OnMemoryEstimate("a", kLarge);
    const auto plan = Plan(now);
    EXPECT_THAT(plan.reject, IsEmpty());
    EXPECT_THAT(plan.too_large, IsEmpty());
    EXPECT_THAT(plan.unload, ElementsAre("b"));
    Reap("b");
    if (memory) {
      const auto granted = Plan(now);
      EXPECT_THAT(LoadsOf(granted), IsEmpty());
      EXPECT_EQ(granted.grants.size(), 1U);
      scheduler().LoadDone("a", now);
      EXPECT_THAT(Plan(now).admit, ElementsAre(Id(1)));
    } else {
      EXPECT_THAT(load("a", now), ElementsAre(Id(1)));
    }
    EXPECT_THAT(Plan(now + seconds(20)).unload, IsEmpty()) << "the pin waits for room that is free";
    scheduler().Remove(Id(1), now);
    now += minutes(6);
    EXPECT_THAT(Plan(now).unload, ElementsAre("a"));
    Reap("a");
    EXPECT_THAT(LoadsOf(Plan(now)), ElementsAre("b"));
    FinishLoad("b", memory, now);
    EXPECT_THAT(Plan(now + hours(1)).unload, IsEmpty()) << "it is pinned as before";
  }
}

TEST_F(SchedulerClaimsTest, ASuspensionKeepsClaims) {
  Make({.models_max = 1, .drain_limit = seconds(10)});
  EnqueueOf("alice", 1, "a", hours(1));
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  EnqueueOf("bob", 2, "b");
  (void)Plan();
  EXPECT_THAT(Plan(kStart + seconds(10)).unload, ElementsAre("a"));
  Reap("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("b"));
  scheduler().LoadDone("b", kStart);
  (void)Plan();
  scheduler().Remove(Id(2), kStart);
  (void)Plan();
  Reap("b");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  scheduler().Remove(Id(1), kStart);
  EXPECT_EQ(Plan().wake_at, kStart + hours(1));
}

// An admin's pin ends with an admin's unload, also where the model is suspended for its own next requests.
TEST_F(SchedulerClaimsTest, AnUnloadForAllEndsThePinOfASuspendedModel) {
  Make({.models_max = 1, .drain_limit = seconds(10)});
  UseOnce("root", 1, "a", kPinOfAdmin);
  EnqueueOf("root", 2, "a");
  (void)Plan();
  scheduler().Start(Id(2));
  scheduler().Unload("a");
  EnqueueOf("alice", 3, "a");
  (void)Plan();
  EXPECT_THAT(Plan(kStart + seconds(10)).unload, ElementsAre("a"));
  Reap("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2), Id(3)));
  scheduler().Remove(Id(2), kStart);
  scheduler().Remove(Id(3), kStart);
  EXPECT_THAT(Plan(kStart + minutes(5)).unload, ElementsAre("a")) << "nothing is pinned";
}

// Else every address that ever asked would cost each decision something.
TEST(KeepAliveClaims, OnlySoManyPartiesHaveOne) {
  KeepAliveClaims claims;
  const fair::PartyId root = fair::PartyNamed("root"), first = fair::PartyNamed("first");
  claims.Start(root, kPinOfAdmin, minutes(5));
  claims.End(root, kStart);
  claims.Start(first, {}, minutes(5));
  for (size_t party = 0; party < 2 * KeepAliveClaims::kPartiesMax; ++party) {
    const fair::PartyId id = fair::PartyNamed("party " + std::to_string(party));
    claims.Start(id, KeepAliveClaim(minutes(10)), minutes(5));
    claims.End(id, kStart + milliseconds(party));
  }
  EXPECT_EQ(claims.running(), 1) << "one whose requests run stays";
  EXPECT_TRUE(claims.IsPinnedByAdmin());
  EXPECT_TRUE(claims.HasOther(first, kStart + minutes(10) + milliseconds(300)));
  claims.Release(root);
  EXPECT_EQ(claims.ExpiresAt(kStart),
            kStart + minutes(10) + milliseconds(2 * KeepAliveClaims::kPartiesMax - 1));
}

}  // namespace
}  // namespace quire::scheduler
