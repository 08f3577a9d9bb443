#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/testing/scheduler_fixture.h"

namespace quire::scheduler {
namespace {

using api::RequestId;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(SchedulerTest, OneLoadHoweverManyAsk) {
  Make(2);
  Enqueue(1, "a");
  Enqueue(2, "a");
  const auto first = Plan();
  ASSERT_THAT(LoadsOf(first), ElementsAre("a"));
  EXPECT_EQ(first.load[0].first, Id(1));
  EXPECT_THAT(first.admit, IsEmpty());
  Enqueue(3, "a");
  EXPECT_THAT(Plan().load, IsEmpty());
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1), Id(2), Id(3)));
  Enqueue(4, "a");
  const auto later = Plan();
  EXPECT_THAT(later.admit, ElementsAre(Id(4)));
  EXPECT_THAT(later.load, IsEmpty());
}

TEST_F(SchedulerTest, LoadFailureReachesAllWhoWait) {
  Make(1);
  Enqueue(1, "a");
  Enqueue(2, "a");
  (void)Plan();
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kRefused, kStart), ElementsAre(Id(1), Id(2)));
  EXPECT_EQ(scheduler().requests(), 0);
  Enqueue(3, "a");  // waits for the slot of the failed runner
  EXPECT_THAT(Plan().load, IsEmpty());
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
}

TEST_F(SchedulerTest, ADeadRunnerFailsItsAdmittedRequestsAndNoOthers) {
  Make(2);
  LoadWith(1, "a");
  LoadWith(2, "b");
  Enqueue(3, "a");  // not admitted yet: no plan was made
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kRefused, kStart), ElementsAre(Id(1)));
  EXPECT_THAT(Plan().admit, IsEmpty());
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(3)));
}

TEST_F(SchedulerTest, ARunnerThatDiesRightAfterItsLoadIsNotLoadedAgainForTheSameRequests) {
  Make(1);
  Enqueue(1, "a");
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kRefused, kStart), ElementsAre(Id(1)));
  scheduler().RunnerReaped("a");
  EXPECT_THAT(Plan().load, IsEmpty());
}

TEST_F(SchedulerTest, UnloadsTheLeastRecentlyUsedIdleModel) {
  Make(2);
  LoadWith(1, "a");
  LoadWith(2, "b");
  scheduler().Remove(Id(1), kStart);
  scheduler().Remove(Id(2), kStart);
  Enqueue(3, "a");  // now b is the one used longest ago
  (void)Plan();
  scheduler().Remove(Id(3), kStart);
  Enqueue(4, "c");
  const auto plan = Plan();
  EXPECT_THAT(plan.unload, ElementsAre("b"));
  EXPECT_THAT(plan.load, IsEmpty()) << "memory is freed before it is granted";
  EXPECT_THAT(Plan().unload, IsEmpty()) << "one slot is enough";
  scheduler().RunnerReaped("b");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("c"));
}

TEST_F(SchedulerTest, ABusyModelDrainsItsRequestsFirst) {
  Make(1);
  LoadWith(1, "a");
  Enqueue(2, "b");
  EXPECT_THAT(Plan().unload, IsEmpty());
  Enqueue(3, "a");
  EXPECT_THAT(Plan().admit, IsEmpty()) << "a steady stream for a must not keep b out";
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("b"));
  scheduler().LoadDone("b", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  scheduler().Remove(Id(2), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("b"));
  scheduler().RunnerReaped("b");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
}

TEST_F(SchedulerTest, ADrainingModelContinuesWhenItsSlotIsNotNeeded) {
  Make(1);
  LoadWith(1, "a");
  Enqueue(2, "b");
  (void)Plan();
  Enqueue(3, "a");
  scheduler().Remove(Id(2), kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(3)));
}

TEST_F(SchedulerTest, DrainingEndsAfterALimit) {
  Make({.models_max = 1, .drain_limit = seconds(10)});
  LoadWith(1, "a");
  Enqueue(2, "b");
  EXPECT_EQ(Plan().wake_at, kStart + seconds(10));
  EXPECT_THAT(Plan(kStart + seconds(9)).unload, IsEmpty());
  EXPECT_THAT(Plan(kStart + seconds(10)).unload, ElementsAre("a"));
  EXPECT_THAT(scheduler().RunnerStopping("a", ExitCause::kRefused, kStart), IsEmpty()) << "its request waits";
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("b")) << "though a's request is older";
  scheduler().LoadDone("b", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  Enqueue(3, "b");
  (void)Plan();
  // The suspended request takes its turn again: b drains for it.
  scheduler().Remove(Id(2), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("b"));
  scheduler().RunnerReaped("b");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  scheduler().LoadDone("a", kStart);
  EXPECT_THAT(Plan().admit, ElementsAre(Id(1)));
}

// Short requests beside an endless one wait for a pause, not for the end of draining.
TEST_F(SchedulerTest, AModelThatDoesNotBecomeIdleAdmitsAgain) {
  Make({.models_max = 1, .drain_limit = seconds(10), .drain_pause = milliseconds(500)});
  LoadWith(1, "a");
  Enqueue(2, "b");
  (void)Plan();
  Enqueue(3, "a");
  const auto paused = Plan(kStart + milliseconds(100));
  EXPECT_THAT(paused.admit, IsEmpty()) << "it may become idle";
  EXPECT_EQ(paused.wake_at, kStart + milliseconds(500));
  EXPECT_THAT(Plan(kStart + milliseconds(500)).admit, ElementsAre(Id(3)));
  Enqueue(4, "a");
  EXPECT_THAT(Plan(kStart + milliseconds(900)).admit, IsEmpty());
  EXPECT_THAT(Plan(kStart + milliseconds(1000)).admit, ElementsAre(Id(4)));
  scheduler().Remove(Id(3), kStart + milliseconds(1100));
  EXPECT_THAT(Plan(kStart + milliseconds(1100)).unload, IsEmpty());
  EXPECT_THAT(Plan(kStart + seconds(10)).unload, ElementsAre("a"));
}

TEST_F(SchedulerTest, AModelThatDrainsWithoutALimitAdmitsNothing) {
  Make({.models_max = 1, .drain_limit = {}});
  LoadWith(1, "a");
  Enqueue(2, "b");
  (void)Plan();
  Enqueue(3, "a");
  EXPECT_THAT(Plan(kStart + hours(1)).admit, IsEmpty());
  scheduler().Remove(Id(1), kStart + hours(1));
  EXPECT_THAT(Plan(kStart + hours(1)).unload, ElementsAre("a"));
}

TEST_F(SchedulerTest, ShortAnswersOfBusyModelsDoNotKeepAThirdOut) {
  Make({.models_max = 2, .drain_limit = seconds(10)});
  LoadWith(1, "a");
  LoadWith(2, "b");
  Enqueue(3, "c");
  // Both always have an answer in progress; every second the oldest ends and another arrives.
  std::map<uint64_t, std::string> running{{1, "a"}, {2, "b"}};
  for (int second = 1; second <= 12; ++second) {
    const Time now = kStart + seconds(second);
    const auto [oldest, key] = *running.begin();
    scheduler().Remove(Id(oldest), now);
    running.erase(oldest);
    Enqueue(static_cast<uint64_t>(second) + 3, key);
    const auto plan = Plan(now);
    if (!plan.unload.empty()) return;
    for (const RequestId id : plan.admit) running[static_cast<uint64_t>(id)] = key;
    ASSERT_FALSE(running.empty());
  }
  ADD_FAILURE() << "c never gets a place";
}

TEST_F(SchedulerTest, KeepAliveStartsWhenTheLastRequestEnds) {
  Make(1);
  LoadWith(1, "a");
  Enqueue(2, "a", seconds(30));
  EXPECT_FALSE(Plan().wake_at);
  scheduler().Remove(Id(2), kStart + hours(1));
  EXPECT_FALSE(Plan(kStart + hours(1)).wake_at) << "one request still runs";
  scheduler().Remove(Id(1), kStart + hours(2));
  EXPECT_EQ(Plan(kStart + hours(2)).wake_at, kStart + hours(2) + seconds(30));
  EXPECT_THAT(Plan(kStart + hours(2) + seconds(29)).unload, IsEmpty());
  EXPECT_THAT(Plan(kStart + hours(2) + seconds(30)).unload, ElementsAre("a"));
}

TEST_F(SchedulerTest, TheLastRequestThatSaysSomethingDecidesKeepAlive) {
  Make(1);
  LoadWith(1, "a", kNeverExpires);
  Enqueue(2, "a");
  (void)Plan();
  EXPECT_EQ(scheduler().ReadyModels(kStart)[0].expires_at, std::nullopt);
  Enqueue(3, "a", seconds(10));
  (void)Plan();
  EXPECT_EQ(scheduler().ReadyModels(kStart)[0].expires_at, kStart + seconds(10));
  EXPECT_EQ(scheduler().ReadyModels(kStart)[0].running, 3);
}

TEST_F(SchedulerTest, KeepAliveZeroUnloadsTheModelWithItsLastRequest) {
  Make(1);
  LoadWith(1, "a", KeepAlive::zero());
  EXPECT_THAT(Plan().unload, IsEmpty());
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
  Enqueue(2, "a");  // the next stay starts from the default
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  scheduler().Remove(Id(2), kStart);
  EXPECT_EQ(Plan().wake_at, kStart + minutes(5));
}

TEST_F(SchedulerTest, KeepAliveBeyondTheClockIsForever) {
  Make(1);
  LoadWith(1, "a", KeepAlive::max());
  scheduler().Remove(Id(1), kStart);
  const auto plan = Plan();
  EXPECT_FALSE(plan.wake_at);
  EXPECT_THAT(plan.unload, IsEmpty());
}

TEST_F(SchedulerTest, APinnedModelIsNotUnloadedToMakeRoom) {
  Make(2);
  LoadWith(1, "a", kNeverExpires);
  LoadWith(2, "b");
  scheduler().Remove(Id(1), kStart);
  scheduler().Remove(Id(2), kStart);
  Enqueue(3, "c");
  EXPECT_THAT(Plan().unload, ElementsAre("b"));
}

TEST_F(SchedulerTest, RejectsWhenEverySlotIsPinned) {
  Make(1);
  LoadWith(1, "a", kNeverExpires);
  Enqueue(2, "b");
  Enqueue(3, "b");
  EXPECT_THAT(Plan().reject, ElementsAre(Id(2), Id(3)));
  EXPECT_EQ(scheduler().requests(), 1);
  scheduler().Unload("a");
  scheduler().Remove(Id(1), kStart);
  Enqueue(4, "b");
  EXPECT_THAT(Plan().unload, ElementsAre("a")) << "unloading by name unloads a pinned model";
}

TEST_F(SchedulerTest, UnloadWaitsForRunningRequestsAndStopsNewOnes) {
  Make(1);
  LoadWith(1, "a");
  scheduler().Unload("a");
  Enqueue(2, "a");
  const auto busy = Plan();
  EXPECT_THAT(busy.unload, IsEmpty());
  EXPECT_THAT(busy.admit, IsEmpty());
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
  scheduler().RunnerReaped("a");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("a"));
}

// An endless answer of a model that was unloaded by name keeps neither another model nor the model itself
// out.
TEST_F(SchedulerTest, AModelUnloadedByNameDrainsForALimitToo) {
  for (const std::string next : {"b", "a"}) {
    Make({.models_max = 1, .drain_limit = seconds(10)});
    LoadWith(1, "a");
    scheduler().Unload("a");
    EXPECT_EQ(Plan(kStart + minutes(1)).wake_at, std::nullopt) << "nobody waits for it";
    Enqueue(2, next);
    const Time asked = kStart + minutes(2);
    EXPECT_EQ(Plan(asked).wake_at, asked + seconds(10));
    const auto plan = Plan(asked + seconds(10));
    EXPECT_THAT(plan.unload, ElementsAre("a"));
    EXPECT_THAT(plan.suspended, ElementsAre(Id(1)));
    scheduler().RunnerReaped("a");
    EXPECT_THAT(LoadsOf(Plan(asked + seconds(10))), ElementsAre(next));
  }
}

// Its runner said so when it was about to be stopped: in the next runner it says no more, and must not
// expire.
TEST_F(SchedulerTest, ARequestThatStartedBeforeItWasSuspendedDoesNotWait) {
  Make({.models_max = 1, .drain_limit = seconds(10), .queue_timeout = minutes(1)});
  Enqueue(1, "a");
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  ASSERT_THAT(Plan().admit, ElementsAre(Id(1)));
  Enqueue(2, "b");
  (void)Plan();
  ASSERT_THAT(Plan(kStart + seconds(10)).suspended, ElementsAre(Id(1)));
  scheduler().Start(Id(1));
  EXPECT_EQ(scheduler().waiting(), 1);
  EXPECT_THAT(Plan(kStart + minutes(2)).expire, ElementsAre(Id(2)));
}

TEST_F(SchedulerTest, UnloadDuringALoadServesWhoWaitsFirst) {
  Make(1);
  Enqueue(1, "a");
  (void)Plan();
  scheduler().Unload("a");
  scheduler().LoadDone("a", kStart);
  const auto loaded = Plan();
  EXPECT_THAT(loaded.admit, ElementsAre(Id(1)));
  EXPECT_THAT(loaded.unload, IsEmpty());
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
}

TEST_F(SchedulerTest, UnloadOfTheUnknownIsIgnored) {
  Make(1);
  scheduler().Unload("a");
  EXPECT_THAT(Plan().unload, IsEmpty());
}

TEST_F(SchedulerTest, ALoadWithoutWaitingRequestsIsCancelled) {
  Make(1);
  Enqueue(1, "a");
  (void)Plan();
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, ElementsAre("a"));
  scheduler().RunnerReaped("a");
  EXPECT_EQ(scheduler().requests(), 0);
  EXPECT_THAT(scheduler().ReadyModels(kStart), IsEmpty());
}

TEST_F(SchedulerTest, AQueuedModelIsDroppedWithItsLastRequest) {
  Make(1);
  LoadWith(1, "a");
  Enqueue(2, "b");
  (void)Plan();
  scheduler().Remove(Id(2), kStart);
  scheduler().Remove(Id(1), kStart);
  EXPECT_THAT(Plan().unload, IsEmpty());
}

TEST_F(SchedulerTest, TheQueueIsBoundedOverAllModelsLoadedOrNot) {
  Make(1, 3);
  LoadWith(1, "a");  // started: does not wait
  Enqueue(2, "a");   // admitted, but the runner has not started it
  (void)Plan();
  Enqueue(3, "b");
  Enqueue(4, "c");
  const auto refused = scheduler().Enqueue(Id(5), "a", {}, kStart);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kOverloaded);
  EXPECT_EQ(refused.error().message, "server busy, please try again.  maximum pending requests exceeded");
  EXPECT_TRUE(scheduler().IsFullFor("a", {}));
  scheduler().Start(Id(2));
  EXPECT_EQ(scheduler().waiting(), 2);
  EXPECT_TRUE(scheduler().Enqueue(Id(6), "a", {}, kStart));
  EXPECT_TRUE(scheduler().IsFullFor("b", {}));
}

// A flooded model has no place for more, however many the whole queue has: clients learn it before any work
// for them.
TEST_F(SchedulerTest, AModelWhoseQueueIsFullIsFull) {
  Make({.models_max = 1, .queue_max = 16, .model_queue_max = 12});
  uint64_t id = 0;
  while (!scheduler().IsFullFor("a", {})) {
    ASSERT_LT(id, 16);
    Enqueue(++id, "a");
  }
  EXPECT_EQ(id, 12);
  EXPECT_FALSE(scheduler().Enqueue(Id(++id), "a", {}, kStart));
  EXPECT_FALSE(scheduler().IsFullFor("b", {}));
}

TEST_F(SchedulerTest, WaitersOfDifferentModelsAreServedInOrderOfArrival) {
  Make(1);
  LoadWith(1, "m");
  Enqueue(2, "z");
  Enqueue(3, "a");
  (void)Plan();
  scheduler().Remove(Id(1), kStart);
  (void)Plan();
  scheduler().RunnerReaped("m");
  EXPECT_THAT(LoadsOf(Plan()), ElementsAre("z"));
}

}  // namespace
}  // namespace quire::scheduler
