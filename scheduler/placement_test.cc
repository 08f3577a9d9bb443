#include "scheduler/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace quire::scheduler {
namespace {

using api::RequestId;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Time = Placement::Time;
using KeepAlive = Placement::KeepAlive;
using Ending = Placement::Ending;

const Time kStart{hours(1)};
constexpr KeepAlive kForEver{-1};

RequestId Id(uint64_t value) { return RequestId{value}; }

// A Placement whose every plan is checked, with loads and ends answered by the test.
class PlacementTest : public testing::Test {
 protected:
  void Make(int32_t models_max, int32_t queue_max = 100) {
    Make(Placement::Options{
        .models_max = models_max, .queue_max = queue_max, .default_keep_alive = minutes(5)});
  }
  void Make(Placement::Options options) { placement_.emplace(options); }
  Placement& placement() { return *placement_; }

  void Arrive(uint64_t id, const std::string& key, std::optional<KeepAlive> keep_alive = {}) {
    ASSERT_TRUE(placement_->Arrive(Id(id), key, keep_alive, kStart));
  }
  Placement::Plan Plan(Time now = kStart) {
    Placement::Plan plan = placement_->NextPlan(now);
    EXPECT_EQ(placement_->CheckInvariants(), "");
    return plan;
  }
  // Loads a model with one request and lets that one through.
  void LoadWith(uint64_t id, const std::string& key, std::optional<KeepAlive> keep_alive = {}) {
    Arrive(id, key, keep_alive);
    ASSERT_THAT(LoadsOf(Plan()), ElementsAre(key));
    placement_->LoadDone(key, kStart);
    ASSERT_THAT(Plan().admit, ElementsAre(Id(id)));
    placement_->Start(Id(id));
  }
  static std::vector<std::string> LoadsOf(const Placement::Plan& plan) {
    std::vector<std::string> keys;
    for (const Placement::Load& load : plan.load) keys.push_back(load.key);
    return keys;
  }

 private:
  std::optional<Placement> placement_;
};

TEST_F(PlacementTest, OneLoadHoweverManyAsk) {
  Make(2);
  Arrive(1, "a");
  Arrive(2, "a");
  const auto first = Plan();
  ASSERT_THAT(LoadsOf(first), ElementsAre("a"));
  EXPECT_EQ(first.load[0].first, Id(1));
  EXPECT_THAT(first.admit, IsEmpty());
  Arrive(3, "a");
  EXPECT_THAT(Plan().load, IsEmpty());
  placement().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1), Id(2), Id(3)));
  Arrive(4, "a");
  const auto later = Plan();
  EXPECT_THAT(later.admit, ElementsAre(Id(4)));
  EXPECT_THAT(later.load, IsEmpty());
}

TEST_F(PlacementTest, LoadFailureReachesAllWhoWait) {
  Make(1);
  Arrive(1, "a");
  Arrive(2, "a");
  (void)Plan();
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kRefused, kStart), ElementsAre(Id(1), Id(2)));
  EXPECT_EQ(placement().requests(), 0);
  Arrive(3, "a");  // waits for the place of the failed runner
  EXPECT_THAT(Plan().load, IsEmpty());
  placement().RunnerGone("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
}

TEST_F(PlacementTest, DeathTakesTheRequestsLetThroughAndNoOthers) {
  Make(2);
  LoadWith(1, "a");
  LoadWith(2, "b");
  Arrive(3, "a");  // not let through yet: no plan was made
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kRefused, kStart), ElementsAre(Id(1)));
  EXPECT_THAT(Plan().admit, IsEmpty());
  placement().RunnerGone("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  placement().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(3)));
}

TEST_F(PlacementTest, ARunnerThatDiesRightAfterItsLoadIsNotLoadedAgainForTheSameRequests) {
  Make(1);
  Arrive(1, "a");
  (void)Plan();
  placement().LoadDone("a", kStart);
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kRefused, kStart), ElementsAre(Id(1)));
  placement().RunnerGone("a");
  EXPECT_THAT(Plan().load, IsEmpty());
}

TEST_F(PlacementTest, EndsTheLeastRecentlyUsedIdleModel) {
  Make(2);
  LoadWith(1, "a");
  LoadWith(2, "b");
  placement().Leave(Id(1), kStart);
  placement().Leave(Id(2), kStart);
  Arrive(3, "a");  // now b is the one used longest ago
  (void)Plan();
  placement().Leave(Id(3), kStart);
  Arrive(4, "c");
  const auto plan = Plan();
  EXPECT_THAT(plan.end, ElementsAre("b"));
  EXPECT_THAT(plan.load, IsEmpty()) << "room is made before it is taken";
  EXPECT_THAT(Plan().end, IsEmpty()) << "one place is enough";
  placement().RunnerGone("b");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("c"));
}

TEST_F(PlacementTest, ABusyModelYieldsAfterTheRequestsItHas) {
  Make(1);
  LoadWith(1, "a");
  Arrive(2, "b");
  EXPECT_THAT(Plan().end, IsEmpty());
  Arrive(3, "a");
  EXPECT_THAT(Plan().admit, IsEmpty()) << "a steady stream for a must not keep b out";
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("a"));
  placement().RunnerGone("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("b"));
  placement().LoadDone("b", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  placement().Leave(Id(2), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("b"));
  placement().RunnerGone("b");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
}

TEST_F(PlacementTest, AYieldingModelGoesOnWhenNobodyNeedsItsPlace) {
  Make(1);
  LoadWith(1, "a");
  Arrive(2, "b");
  (void)Plan();
  Arrive(3, "a");
  placement().Leave(Id(2), kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(3)));
}

TEST_F(PlacementTest, KeepAliveStartsWhenTheLastRequestEnds) {
  Make(1);
  LoadWith(1, "a");
  Arrive(2, "a", seconds(30));
  EXPECT_FALSE(Plan().wake_at);
  placement().Leave(Id(2), kStart + hours(1));
  EXPECT_FALSE(Plan(kStart + hours(1)).wake_at) << "one request still runs";
  placement().Leave(Id(1), kStart + hours(2));
  EXPECT_EQ(Plan(kStart + hours(2)).wake_at, kStart + hours(2) + seconds(30));
  EXPECT_THAT(Plan(kStart + hours(2) + seconds(29)).end, IsEmpty());
  EXPECT_THAT(Plan(kStart + hours(2) + seconds(30)).end, ElementsAre("a"));
}

TEST_F(PlacementTest, TheLastRequestThatSaysSomethingDecidesKeepAlive) {
  Make(1);
  LoadWith(1, "a", kForEver);
  Arrive(2, "a");
  (void)Plan();
  EXPECT_EQ(placement().ReadyModels(kStart)[0].expires_at, std::nullopt);
  Arrive(3, "a", seconds(10));
  (void)Plan();
  EXPECT_EQ(placement().ReadyModels(kStart)[0].expires_at, kStart + seconds(10));
  EXPECT_EQ(placement().ReadyModels(kStart)[0].running, 3);
}

TEST_F(PlacementTest, KeepAliveZeroEndsTheModelWithItsLastRequest) {
  Make(1);
  LoadWith(1, "a", KeepAlive::zero());
  EXPECT_THAT(Plan().end, IsEmpty());
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("a"));
  Arrive(2, "a");  // the next stay starts from the default
  placement().RunnerGone("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  placement().LoadDone("a", kStart);
  (void)Plan();
  placement().Leave(Id(2), kStart);
  EXPECT_EQ(Plan().wake_at, kStart + minutes(5));
}

TEST_F(PlacementTest, KeepAliveBeyondTheClockIsForEver) {
  Make(1);
  LoadWith(1, "a", KeepAlive::max());
  placement().Leave(Id(1), kStart);
  const auto plan = Plan();
  EXPECT_FALSE(plan.wake_at);
  EXPECT_THAT(plan.end, IsEmpty());
}

TEST_F(PlacementTest, APinnedModelIsNotEndedToMakeRoom) {
  Make(2);
  LoadWith(1, "a", kForEver);
  LoadWith(2, "b");
  placement().Leave(Id(1), kStart);
  placement().Leave(Id(2), kStart);
  Arrive(3, "c");
  EXPECT_THAT(Plan().end, ElementsAre("b"));
}

TEST_F(PlacementTest, RefusesWhenEveryPlaceIsPinned) {
  Make(1);
  LoadWith(1, "a", kForEver);
  Arrive(2, "b");
  Arrive(3, "b");
  EXPECT_THAT(Plan().refuse, ElementsAre(Id(2), Id(3)));
  EXPECT_EQ(placement().requests(), 1);
  placement().Unload("a");
  placement().Leave(Id(1), kStart);
  Arrive(4, "b");
  EXPECT_THAT(Plan().end, ElementsAre("a")) << "unloading by name ends a pinned model";
}

TEST_F(PlacementTest, UnloadWaitsForRunningRequestsAndStopsNewOnes) {
  Make(1);
  LoadWith(1, "a");
  placement().Unload("a");
  Arrive(2, "a");
  const auto busy = Plan();
  EXPECT_THAT(busy.end, IsEmpty());
  EXPECT_THAT(busy.admit, IsEmpty());
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("a"));
  placement().RunnerGone("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
}

TEST_F(PlacementTest, UnloadDuringALoadServesWhoWaitsFirst) {
  Make(1);
  Arrive(1, "a");
  (void)Plan();
  placement().Unload("a");
  placement().LoadDone("a", kStart);
  const auto loaded = Plan();
  EXPECT_THAT(loaded.admit, ElementsAre(Id(1)));
  EXPECT_THAT(loaded.end, IsEmpty());
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("a"));
}

TEST_F(PlacementTest, UnloadOfTheUnknownIsIgnored) {
  Make(1);
  placement().Unload("a");
  EXPECT_THAT(Plan().end, IsEmpty());
}

TEST_F(PlacementTest, ALoadThatNobodyWaitsForAnyMoreIsEnded) {
  Make(1);
  Arrive(1, "a");
  (void)Plan();
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("a"));
  placement().RunnerGone("a");
  EXPECT_EQ(placement().requests(), 0);
  EXPECT_THAT(placement().ReadyModels(kStart), IsEmpty());
}

TEST_F(PlacementTest, AWantedModelIsForgottenWithItsLastClient) {
  Make(1);
  LoadWith(1, "a");
  Arrive(2, "b");
  (void)Plan();
  placement().Leave(Id(2), kStart);
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, IsEmpty());
}

TEST_F(PlacementTest, TheQueueIsBoundedOverAllModelsLoadedOrNot) {
  Make(1, 3);
  LoadWith(1, "a");  // started: does not wait
  Arrive(2, "a");    // let through, but the runner has not taken it up
  (void)Plan();
  Arrive(3, "b");
  Arrive(4, "c");
  const auto refused = placement().Arrive(Id(5), "a", {}, kStart);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kOverloaded);
  EXPECT_EQ(refused.error().message, "server busy, please try again.  maximum pending requests exceeded");
  placement().Start(Id(2));
  EXPECT_EQ(placement().waiting(), 2);
  EXPECT_TRUE(placement().Arrive(Id(6), "a", {}, kStart));
}

TEST_F(PlacementTest, WaitersOfDifferentModelsAreServedInOrderOfArrival) {
  Make(1);
  LoadWith(1, "m");
  Arrive(2, "z");
  Arrive(3, "a");
  (void)Plan();
  placement().Leave(Id(1), kStart);
  (void)Plan();
  placement().RunnerGone("m");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("z"));
}

// ---- runners that die ----

TEST_F(PlacementTest, WhoLostARunnerIsLetThroughAgainOneAtATime) {
  Make(1);
  LoadWith(1, "a");
  for (const uint64_t id : {2, 3}) Arrive(id, "a");
  (void)Plan();
  Arrive(4, "a");
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kKilled, kStart), IsEmpty());
  placement().RunnerGone("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a")) << "the first death costs no time";
  placement().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
  EXPECT_THAT(Plan().admit, IsEmpty());
  placement().Progress(Id(1));
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  placement().Leave(Id(2), kStart);
  const auto last = Plan();
  EXPECT_THAT(last.admit, ElementsAre(Id(3)));
  EXPECT_EQ(last.wake_at, kStart + seconds(2));
  EXPECT_THAT(Plan(kStart + seconds(2)).admit, ElementsAre(Id(4)))
      << "a slow one does not hold up all others";
}

TEST_F(PlacementTest, WhoCrashesASecondRunnerFailsAloneAndNoOther) {
  Make(1);
  LoadWith(1, "a");
  Arrive(2, "a");
  (void)Plan();
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kCrashed, kStart), IsEmpty());
  placement().RunnerGone("a");
  (void)Plan();
  placement().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
  placement().Progress(Id(1));
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kCrashed, kStart), ElementsAre(Id(2)));
  placement().RunnerGone("a");
  (void)Plan();
  placement().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
}

TEST_F(PlacementTest, AKillFromOutsideIsHeldAgainstARequestOnlyTheSecondTime) {
  Make(1);
  LoadWith(1, "a");
  Time now = kStart;
  for (int deaths = 0; deaths < 2; ++deaths) {
    EXPECT_THAT(placement().RunnerEnding("a", Ending::kKilled, now), IsEmpty());
    placement().RunnerGone("a");
    now += seconds(60);
    ASSERT_THAT(LoadsOf(Plan(now)), ElementsAre("a"));
    placement().LoadDone("a", now);
    EXPECT_THAT(Plan(now).admit, ElementsAre(Id(1)));
  }
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kKilled, now), ElementsAre(Id(1)));
}

TEST_F(PlacementTest, OneDeathAfterTheOtherCostsMoreAndMoreTime) {
  Make(1);
  LoadWith(1, "a");
  (void)placement().RunnerEnding("a", Ending::kKilled, kStart);
  placement().RunnerGone("a");
  ASSERT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  (void)placement().RunnerEnding("a", Ending::kKilled, kStart);
  placement().RunnerGone("a");
  const auto paused = Plan();
  EXPECT_THAT(paused.load, IsEmpty());
  EXPECT_EQ(paused.wake_at, kStart + std::chrono::milliseconds(250));
  EXPECT_THAT(LoadsOf(Plan(*paused.wake_at)), ElementsAre("a"));
  EXPECT_THAT(placement().RunnerEnding("a", Ending::kKilled, kStart), ElementsAre(Id(1)))
      << "and who waits hears of it in the end";
}

TEST_F(PlacementTest, AModelWhoseRunnerDiedStaysAsLongAsWasAsked) {
  Make(1);
  LoadWith(1, "a", kForEver);
  placement().Leave(Id(1), kStart);
  Arrive(2, "a");
  (void)Plan();
  (void)placement().RunnerEnding("a", Ending::kKilled, kStart);
  placement().RunnerGone("a");
  (void)Plan();
  placement().LoadDone("a", kStart);
  (void)Plan();
  EXPECT_EQ(placement().ReadyModels(kStart).at(0).expires_at, std::nullopt);
}

TEST_F(PlacementTest, APinnedModelWhoseRunnerDiesIdleIsLoadedAgain) {
  Make(1);
  LoadWith(1, "a", kForEver);
  placement().Leave(Id(1), kStart);
  Time now = kStart;
  for (int deaths = 1; deaths < 12; ++deaths) {
    EXPECT_THAT(placement().RunnerEnding("a", Ending::kCrashed, now), IsEmpty());
    placement().RunnerGone("a");
    auto plan = Plan(now);
    if (deaths > 1) {
      EXPECT_THAT(plan.load, IsEmpty());
      ASSERT_TRUE(plan.wake_at);
      EXPECT_LE(*plan.wake_at - now, seconds(33));
      now = *plan.wake_at;
      plan = Plan(now);
    }
    ASSERT_THAT(LoadsOf(plan), ElementsAre("a"));
    EXPECT_EQ(plan.load[0].first, Placement::kNobody);
    EXPECT_THAT(Plan(now).end, IsEmpty()) << "though nobody waits";
    if (deaths % 2 != 0) continue;  // it dies while it loads, too
    placement().LoadDone("a", now);
    EXPECT_THAT(Plan(now).end, IsEmpty());
    EXPECT_EQ(placement().ReadyModels(now).at(0).expires_at, std::nullopt);
  }
}

TEST_F(PlacementTest, APinnedModelThatCannotBeLoadedAnyMoreIsForgotten) {
  Make(1);
  LoadWith(1, "a", kForEver);
  placement().Leave(Id(1), kStart);
  (void)placement().RunnerEnding("a", Ending::kKilled, kStart);
  placement().RunnerGone("a");
  ASSERT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  (void)placement().RunnerEnding("a", Ending::kRefused, kStart);
  placement().RunnerGone("a");
  EXPECT_THAT(Plan(kStart + hours(1)).load, IsEmpty());
  EXPECT_FALSE(placement().WantedBack("a"));
}

TEST_F(PlacementTest, UnloadingAPinnedModelThatIsToComeBackEndsIt) {
  Make(1);
  for (const bool close : {false, true}) {
    LoadWith(close ? 2 : 1, "a", kForEver);
    placement().Leave(Id(close ? 2 : 1), kStart);
    (void)placement().RunnerEnding("a", Ending::kKilled, kStart);
    if (close) {
      placement().Close();
      placement().RunnerGone("a");
    } else {
      placement().RunnerGone("a");
      placement().Unload("a");
    }
    EXPECT_THAT(Plan(kStart + hours(1)).load, IsEmpty());
  }
}

// ---- waiting ----

TEST_F(PlacementTest, TheQueueOfOneModelIsBounded) {
  Make({.models_max = 1, .model_queue_max = 2});
  for (const uint64_t id : {1, 2}) Arrive(id, "a");
  EXPECT_FALSE(placement().Arrive(Id(3), "a", {}, kStart));
  EXPECT_TRUE(placement().Arrive(Id(4), "b", {}, kStart));
}

TEST_F(PlacementTest, WhoWaitsTooLongIsTold) {
  Make({.models_max = 1, .queue_timeout = seconds(10)});
  LoadWith(1, "a");
  Arrive(2, "a");
  ASSERT_THAT(Plan().admit, ElementsAre(Id(2))) << "let through, but the runner does not take it up";
  Arrive(3, "b");
  EXPECT_EQ(Plan().wake_at, kStart + seconds(10));
  EXPECT_THAT(Plan(kStart + seconds(10)).expire, ElementsAre(Id(2), Id(3)));
  EXPECT_EQ(placement().requests(), 1);
}

// ---- memory ----

class PlacementMemoryTest : public PlacementTest {
 protected:
  void SetUp() override { Make({.models_max = 4, .memory_bytes = 100}); }
  // Loads a model as far as that it knows what it needs.
  Placement::Plan Measure(uint64_t id, const std::string& key, Placement::Need need) {
    Arrive(id, key);
    (void)Plan();
    placement().Measured(key, need);
    return Plan();
  }
  static int64_t CacheOf(const Placement::Plan& plan) {
    return plan.grant.size() == 1 ? plan.grant[0].cache_bytes : -1;
  }
};

TEST_F(PlacementMemoryTest, GrantsWhatIsAskedAndThenWhatIsLeft) {
  EXPECT_EQ(CacheOf(Measure(1, "a", {.fixed = 20, .cache = 40, .cache_least = 5})), 40);
  EXPECT_EQ(CacheOf(Measure(2, "b", {.fixed = 20, .cache = 40, .cache_least = 5})), 20);
}

TEST_F(PlacementMemoryTest, EndsTheLeastRecentlyUsedIdleModel) {
  for (const auto& [id, key] : {std::pair<uint64_t, std::string>(1, "a"), {2, "b"}}) {
    ASSERT_EQ(CacheOf(Measure(id, key, {.fixed = 40, .cache = 5, .cache_least = 5})), 5);
    placement().LoadDone(key, kStart);
    (void)Plan();
    placement().Leave(Id(id), kStart);
  }
  const auto plan = Measure(3, "c", {.fixed = 40, .cache = 5, .cache_least = 5});
  EXPECT_THAT(plan.end, ElementsAre("a"));
  EXPECT_THAT(plan.grant, IsEmpty()) << "room is made before it is taken";
  placement().RunnerGone("a");
  EXPECT_EQ(CacheOf(Plan()), 5);
}

TEST_F(PlacementMemoryTest, WaitsForABusyModel) {
  ASSERT_EQ(CacheOf(Measure(1, "a", {.fixed = 80, .cache = 5, .cache_least = 5})), 5);
  placement().LoadDone("a", kStart);
  (void)Plan();
  EXPECT_THAT(Measure(2, "b", {.fixed = 80, .cache = 5, .cache_least = 5}).end, IsEmpty());
  Arrive(3, "a");
  EXPECT_THAT(Plan().admit, IsEmpty()) << "it lets nobody in any more";
  placement().Leave(Id(1), kStart);
  EXPECT_THAT(Plan().end, ElementsAre("a"));
  placement().RunnerGone("a");
  EXPECT_EQ(CacheOf(Plan()), 5);
}

TEST_F(PlacementMemoryTest, AModelThatCanNeverFitIsRefusedAndItsRunnerEnded) {
  const auto plan = Measure(1, "a", {.fixed = 99, .cache = 5, .cache_least = 5});
  ASSERT_EQ(plan.too_large.size(), 1U);
  EXPECT_EQ(plan.too_large[0].id, Id(1));
  EXPECT_EQ(plan.too_large[0].bytes, 104);
  EXPECT_THAT(plan.end, ElementsAre("a"));
}

TEST_F(PlacementMemoryTest, WithFewerBytesThanWishedForItStillServes) {
  EXPECT_EQ(CacheOf(Measure(1, "a", {.fixed = 80, .cache = 400, .cache_least = 5})), 20);
}

// A world of runners and clients that acts at random and sees that everyone is served.
class Simulation {
 public:
  static constexpr int64_t kMemory = 80;

  explicit Simulation(uint32_t seed)
      : random_(seed),
        models_max_(1 + Below(3)),
        placement_({.models_max = models_max_,
                    .queue_max = 12,
                    .default_keep_alive = seconds(3),
                    .memory_bytes = Below(2) == 0 ? 0 : kMemory,
                    .queue_timeout = seconds(Below(2) == 0 ? 0 : 40)}) {}

  void Step() {
    now_ += std::chrono::milliseconds(Below(2000));
    switch (Below(8)) {
      case 0:
      case 1:
      case 2:
        return Arrive();
      case 3:
        return FinishOne();
      case 4:
        return CancelOne();
      case 5:
        return Below(3) == 0 ? Measure() : FinishLoad(Below(5) != 0);
      case 6:
        return Below(6) == 0 ? Crash() : Reap();
      default:
        if (Below(5) == 0) placement_.Unload(Key());
    }
  }

  void Plan() {
    const Placement::Plan plan = placement_.NextPlan(now_);
    ASSERT_EQ(placement_.CheckInvariants(), "");
    for (const RequestId id : plan.expire) ASSERT_EQ(waiting_.erase(id) + running_.erase(id), 1U);
    for (const std::string& key : plan.end) {
      ASSERT_TRUE(loading_.contains(key) || ready_.contains(key)) << "ended twice: " << key;
      for (const auto& [id, running] : running_) ASSERT_NE(running, key) << "ended while it ran";
      loading_.erase(key);
      granted_.erase(key);
      ready_.erase(key);
      ending_.insert(key);
    }
    for (const Placement::Grant& grant : plan.grant) {
      ASSERT_TRUE(loading_.contains(grant.key));
      ASSERT_TRUE(granted_.insert(grant.key).second) << "granted twice";
      ASSERT_GE(grant.cache_bytes, NeedOf(grant.key).cache_least);
    }
    for (const Placement::TooLarge& one : plan.too_large) ASSERT_EQ(waiting_.erase(one.id), 1U);
    for (const Placement::Load& load : plan.load) {
      ASSERT_FALSE(loading_.contains(load.key) || ready_.contains(load.key) || ending_.contains(load.key));
      ASSERT_TRUE(waiting_.contains(load.first) || pinned_.contains(load.key));
      loading_.insert(load.key);
    }
    ASSERT_LE(std::ssize(loading_) + std::ssize(ready_) + std::ssize(ending_), models_max_);
    for (const RequestId id : plan.admit) {
      ASSERT_TRUE(ready_.contains(waiting_.at(id)));
      const std::string key = waiting_.at(id);
      if (const auto said = keep_alive_.find(id);
          said != keep_alive_.end() && said->second < KeepAlive::zero()) {
        pinned_.insert(key);
      } else if (said != keep_alive_.end()) {
        pinned_.erase(key);
      }
      if (suspects_.contains(id)) {
        ASSERT_TRUE(!tried_.contains(key) || tried_.at(key) <= now_) << "two suspects at once";
        tried_[key] = now_ + Placement::Options().trial_time;
      }
      running_[id] = key;
      waiting_.erase(id);
    }
    for (const RequestId id : plan.refuse) ASSERT_EQ(waiting_.erase(id), 1U);
  }

  // No more arrivals, crashes or cancels: with every runner doing its part all waiting requests get through.
  void Settle() {
    for (int round = 0; round < 500 && !(waiting_.empty() && running_.empty()); ++round) {
      now_ += seconds(1);
      Plan();
      Measure();
      FinishLoad(true);
      FinishOne();
      Reap();
    }
    EXPECT_EQ(waiting_.size(), 0U) << "someone waits for ever";
    EXPECT_EQ(running_.size(), 0U);
    EXPECT_EQ(placement_.requests(), 0);
    EXPECT_EQ(placement_.waiting(), 0);
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  std::string Key() { return std::string(1, static_cast<char>('a' + Below(5))); }
  template <class Set>
  auto Any(Set& set) {
    return std::next(set.begin(), Below(static_cast<int>(set.size())));
  }

  void Arrive() {
    const RequestId id = Id(++ids_);
    const std::string key = Key();
    std::optional<KeepAlive> keep_alive;
    if (Below(4) == 0) keep_alive = seconds(Below(4) - 1);
    if (placement_.Arrive(id, key, keep_alive, now_)) waiting_[id] = key;
    if (keep_alive) keep_alive_[id] = *keep_alive;
  }
  void FinishOne() {
    if (running_.empty()) return;
    const auto one = Any(running_);
    placement_.Start(one->first);
    if (Below(2) == 0) Clear(one->first);
    if (Below(3) == 0) return;  // it goes on for a while
    Clear(one->first);
    placement_.Leave(one->first, now_);
    running_.erase(one);
  }
  void Clear(RequestId id) {
    placement_.Progress(id);
    if (suspects_.erase(id) != 0) tried_.erase(running_.at(id));
  }
  static Placement::Need NeedOf(const std::string& key) {
    const int64_t size = 15 * (key[0] - 'a' + 1);  // the largest never fits with its caches
    return {.fixed = size, .cache = 40, .cache_least = 10};
  }
  void Measure() {
    if (loading_.empty()) return;
    const std::string key = *Any(loading_);
    if (!granted_.contains(key)) placement_.Measured(key, NeedOf(key));
  }
  void CancelOne() {
    auto& from = Below(2) == 0 ? waiting_ : running_;
    if (from.empty()) return;
    const auto one = Any(from);
    if (&from == &running_ && suspects_.contains(one->first)) tried_.erase(one->second);
    placement_.Leave(one->first, now_);
    from.erase(one);
  }
  void FinishLoad(bool well) {
    if (loading_.empty()) return;
    const std::string key = *Any(loading_);
    if (well && !granted_.contains(key)) return;
    loading_.erase(key);
    granted_.erase(key);
    if (well) {
      placement_.LoadDone(key, now_);
      ready_.insert(key);
    } else {
      Lose(key);
    }
  }
  void Crash() {
    if (ready_.empty()) return;
    const std::string key = *Any(ready_);
    ready_.erase(key);
    Lose(key);
  }
  void Lose(const std::string& key) {
    const Ending ending = std::array{Ending::kRefused, Ending::kKilled, Ending::kCrashed}[Below(3)];
    for (const RequestId id : placement_.RunnerEnding(key, ending, now_)) {
      ASSERT_EQ(waiting_.erase(id) + running_.erase(id), 1U) << "a request failed that was not there";
      suspects_.erase(id);
    }
    std::erase_if(running_, [&](const auto& entry) {
      if (entry.second != key) return false;
      waiting_.insert(entry);
      suspects_.insert(entry.first);
      return true;
    });
    tried_.erase(key);
    ending_.insert(key);
  }
  void Reap() {
    if (ending_.empty()) return;
    const std::string key = *Any(ending_);
    ending_.erase(key);
    placement_.RunnerGone(key);
  }

  std::mt19937 random_;
  const int models_max_;
  Placement placement_;
  Time now_ = kStart;
  uint64_t ids_ = 0;
  std::map<RequestId, std::string> waiting_, running_;
  std::set<std::string> loading_, granted_, ready_, ending_;
  std::map<RequestId, KeepAlive> keep_alive_;  // what requests said
  std::set<std::string> pinned_;
  std::set<RequestId> suspects_;
  std::map<std::string, Time> tried_;  // by model: until when the next suspect has to wait
};

TEST(PlacementSimulation, NoRequestIsLostStarvedOrEndedTwice) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed);
    for (int step = 0; step < 300 && !testing::Test::HasFatalFailure(); ++step) {
      simulation.Step();
      if (step % 3 != 0) simulation.Plan();
    }
    simulation.Settle();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace quire::scheduler
