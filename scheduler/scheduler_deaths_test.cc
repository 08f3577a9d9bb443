// The scheduler when runners die, requests wait, and memory is short.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// ---- runners that die ----

TEST_F(SchedulerTest, RequestsThatLostARunnerAreReadmittedOneAtATime) {
  Make(1);
  LoadWith(1, "a");
  for (const uint64_t id : {2, 3}) Enqueue(id, "a");
  (void)Plan();
  Enqueue(4, "a");
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kKilled, kStart), IsEmpty());
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a")) << "the first death costs no time";
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
  EXPECT_THAT(Plan().admit, IsEmpty());
  scheduler().Progress(Id(1), kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  scheduler().Remove(Id(2), kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(3)));
  EXPECT_EQ(Plan().wake_at, kStart + seconds(2));
  EXPECT_THAT(Plan(kStart + seconds(2)).admit, ElementsAre(Id(4)))
      << "a slow one does not hold up all others";
}

TEST_F(SchedulerTest, OnlyTheRequestThatCrashesASecondRunnerFails) {
  Make(1);
  LoadWith(1, "a");
  Enqueue(2, "a");
  (void)Plan();
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kCrashed, kStart), IsEmpty());
  scheduler().RunnerReaped("a");
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
  scheduler().Progress(Id(1), kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kCrashed, kStart), ElementsAre(Id(2)));
  scheduler().RunnerReaped("a");
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
}

TEST_F(SchedulerTest, AnExternalKillCountsAgainstARequestOnlyTheSecondTime) {
  Make(1);
  LoadWith(1, "a");
  Time now = kStart;
  for (int deaths = 0; deaths < 2; ++deaths) {
    EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kKilled, now), IsEmpty());
    scheduler().RunnerReaped("a");
    now += seconds(60);
    ASSERT_THAT(LoadsOf(Plan(now)), ElementsAre("a"));
    scheduler().LoadDone("a", now);
    EXPECT_THAT(Plan(now).admit, ElementsAre(Id(1)));
  }
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kKilled, now), ElementsAre(Id(1)));
}

TEST_F(SchedulerTest, RepeatedDeathsDelayTheRestartMoreAndMore) {
  Make(1);
  LoadWith(1, "a");
  (void)scheduler().RunnerStopping("a", ExitCause::kKilled, kStart);
  scheduler().RunnerReaped("a");
  ASSERT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  (void)scheduler().RunnerStopping("a", ExitCause::kKilled, kStart);
  scheduler().RunnerReaped("a");
  const auto paused = Plan();
  EXPECT_THAT(paused.load, IsEmpty());
  EXPECT_EQ(paused.wake_at, kStart + std::chrono::milliseconds(250));
  EXPECT_THAT(LoadsOf(Plan(*paused.wake_at)), ElementsAre("a"));
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kKilled, kStart), ElementsAre(Id(1)))
      << "and who waits hears of it in the end";
}

TEST_F(SchedulerTest, AModelWhoseRunnerDiedStaysAsLongAsWasAsked) {
  Make(1);
  LoadWith(1, "a", kNeverExpires);
  scheduler().Remove(Id(1), kStart);
  Enqueue(2, "a");
  (void)Plan();
  (void)scheduler().RunnerStopping("a", ExitCause::kKilled, kStart);
  scheduler().RunnerReaped("a");
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  EXPECT_EQ(scheduler().ReadyModels(kStart).at(0).expires_at, std::nullopt);
}

TEST_F(SchedulerTest, APinnedModelWhoseRunnerDiesIdleIsLoadedAgain) {
  Make(1);
  LoadWith(1, "a", kNeverExpires);
  scheduler().Remove(Id(1), kStart);
  Time now = kStart;
  for (int deaths = 1; deaths < 12; ++deaths) {
    EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kCrashed, now), IsEmpty());
    scheduler().RunnerReaped("a");
    auto plan = Plan(now);
    if (deaths > 1) {
      EXPECT_THAT(plan.load, IsEmpty());
      ASSERT_TRUE(plan.wake_at);
      EXPECT_LE(*plan.wake_at - now, seconds(33));
      now = *plan.wake_at;
      plan = Plan(now);
    }
    ASSERT_THAT(LoadsOf(plan), ElementsAre("a"));
    EXPECT_EQ(plan.load[0].first, Plan::kNoRequest);
    EXPECT_THAT(Plan(now).unload, IsEmpty()) << "even without a waiting request";
    if (deaths % 2 != 0) continue;  // it dies while it loads, too
    scheduler().LoadDone("a", now);
    EXPECT_THAT(Plan(now).unload, IsEmpty());
    EXPECT_EQ(scheduler().ReadyModels(now).at(0).expires_at, std::nullopt);
  }
}

TEST_F(SchedulerTest, APinnedModelThatCannotBeLoadedAnyMoreIsForgotten) {
  Make(1);
  LoadWith(1, "a", kNeverExpires);
  scheduler().Remove(Id(1), kStart);
  (void)scheduler().RunnerStopping("a", ExitCause::kKilled, kStart);
  scheduler().RunnerReaped("a");
  ASSERT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  (void)scheduler().RunnerStopping("a", ExitCause::kRefused, kStart);
  scheduler().RunnerReaped("a");
  EXPECT_THAT(Plan(kStart + hours(1)).load, IsEmpty());
  EXPECT_FALSE(scheduler().WillRestart("a"));
}

TEST_F(SchedulerTest, UnloadingAPinnedModelCancelsItsRestart) {
  Make(1);
  for (const bool close : {false, true}) {
    LoadWith(close ? 2 : 1, "a", kNeverExpires);
    scheduler().Remove(Id(close ? 2 : 1), kStart);
    (void)scheduler().RunnerStopping("a", ExitCause::kKilled, kStart);
    if (close) {
      scheduler().Close();
      scheduler().RunnerReaped("a");
    } else {
      scheduler().RunnerReaped("a");
      scheduler().Unload("a");
    }
    EXPECT_THAT(Plan(kStart + hours(1)).load, IsEmpty());
  }
}

// ---- waiting ----

TEST_F(SchedulerTest, TheQueueOfOneModelIsBounded) {
  Make({.models_max = 1, .model_queue_max = 2});
  for (const uint64_t id : {1, 2}) Enqueue(id, "a");
  EXPECT_FALSE(scheduler().Enqueue(Id(3), "a", {}, kStart));
  EXPECT_TRUE(scheduler().Enqueue(Id(4), "b", {}, kStart));
}

TEST_F(SchedulerTest, ARequestThatWaitsTooLongExpires) {
  Make({.models_max = 1, .queue_timeout = seconds(10)});
  LoadWith(1, "a");
  Enqueue(2, "a");
  ASSERT_THAT(Plan().admit, ElementsAre(Id(2))) << "admitted, but the runner does not start it";
  Enqueue(3, "b");
  EXPECT_EQ(Plan().wake_at, kStart + seconds(10));
  EXPECT_THAT(Plan(kStart + seconds(10)).expire, ElementsAre(Id(2), Id(3)));
  EXPECT_EQ(scheduler().requests(), 1);
}

// ---- memory ----

class SchedulerMemoryTest : public SchedulerTest {
 protected:
  void SetUp() override { Make({.models_max = 4, .memory_bytes = 100}); }
  // Loads a model up to its memory estimate.
  scheduler::Plan Estimate(uint64_t id, const std::string& key, MemoryEstimate estimate) {
    Enqueue(id, key);
    (void)Plan();
    scheduler().OnMemoryEstimate(key, estimate);
    return Plan();
  }
  static int64_t CacheOf(const scheduler::Plan& plan) {
    return plan.grants.size() == 1 ? plan.grants[0].cache_bytes : -1;
  }
};

TEST_F(SchedulerMemoryTest, GrantsWhatIsRequestedAndThenWhatIsLeft) {
  EXPECT_EQ(CacheOf(Estimate(1, "a", {.fixed_bytes = 20, .cache_bytes = 40, .cache_min_bytes = 5})), 40);
  EXPECT_EQ(CacheOf(Estimate(2, "b", {.fixed_bytes = 20, .cache_bytes = 40, .cache_min_bytes = 5})), 20);
}

TEST_F(SchedulerMemoryTest, UnloadsTheLeastRecentlyUsedIdleModel) {
  for (const auto& [id, key] : {std::pair<uint64_t, std::string>(1, "a"), {2, "b"}}) {
    ASSERT_EQ(CacheOf(Estimate(id, key, {.fixed_bytes = 40, .cache_bytes = 5, .cache_min_bytes = 5})), 5);
    scheduler().LoadDone(key, kStart);
    (void)Plan();
    scheduler().Remove(Id(id), kStart);
  }
  const auto plan = Estimate(3, "c", {.fixed_bytes = 40, .cache_bytes = 5, .cache_min_bytes = 5});
  EXPECT_THAT(plan.unload, ElementsAre("a"));
  EXPECT_THAT(plan.grants, IsEmpty()) << "memory is freed before it is granted";
  scheduler().RunnerReaped("a");
  EXPECT_EQ(CacheOf(Plan()), 5);
}

TEST_F(SchedulerMemoryTest, WaitsForABusyModel) {
  ASSERT_EQ(CacheOf(Estimate(1, "a", {.fixed_bytes = 80, .cache_bytes = 5, .cache_min_bytes = 5})), 5);
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  EXPECT_THAT(Estimate(2, "b", {.fixed_bytes = 80, .cache_bytes = 5, .cache_min_bytes = 5}).unload,
              IsEmpty());
  Enqueue(3, "a");
  EXPECT_THAT(Plan().admit, IsEmpty()) << "it admits nothing any more";
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
  scheduler().RunnerReaped("a");
  EXPECT_EQ(CacheOf(Plan()), 5);
}

TEST_F(SchedulerMemoryTest, AModelThatCanNeverFitIsRejectedAndItsRunnerStopped) {
  const auto plan = Estimate(1, "a", {.fixed_bytes = 99, .cache_bytes = 5, .cache_min_bytes = 5});
  ASSERT_EQ(plan.too_large.size(), 1U);
  EXPECT_EQ(plan.too_large[0].id, Id(1));
  EXPECT_EQ(plan.too_large[0].bytes, 104);
  EXPECT_THAT(plan.unload, ElementsAre("a"));
}

TEST_F(SchedulerMemoryTest, ServesWithLessCacheThanRequested) {
  EXPECT_EQ(CacheOf(Estimate(1, "a", {.fixed_bytes = 80, .cache_bytes = 400, .cache_min_bytes = 5})), 20);
}

}  // namespace
}  // namespace quire::scheduler
