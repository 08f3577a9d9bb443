#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
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
using Time = Scheduler::Time;
using KeepAlive = Scheduler::KeepAlive;
using ExitCause = Scheduler::ExitCause;

const Time kStart{hours(1)};
constexpr KeepAlive kNeverUnload{-1};

RequestId Id(uint64_t value) { return RequestId{value}; }

// A Scheduler whose every plan is checked; the test reports loads and stops.
class SchedulerTest : public testing::Test {
 protected:
  void Make(int32_t models_max, int32_t queue_max = 100) {
    Make(Scheduler::Options{
        .models_max = models_max, .queue_max = queue_max, .default_keep_alive = minutes(5)});
  }
  void Make(Scheduler::Options options) { scheduler_.emplace(options); }
  Scheduler& scheduler() { return *scheduler_; }

  void Enqueue(uint64_t id, const std::string& key, std::optional<KeepAlive> keep_alive = {}) {
    ASSERT_TRUE(scheduler_->Enqueue(Id(id), key, keep_alive, kStart));
  }
  Scheduler::Plan Plan(Time now = kStart) {
    Scheduler::Plan plan = scheduler_->NextPlan(now);
    EXPECT_EQ(scheduler_->CheckInvariants(), "");
    return plan;
  }
  // Loads a model with one request and admits it.
  void LoadWith(uint64_t id, const std::string& key, std::optional<KeepAlive> keep_alive = {}) {
    Enqueue(id, key, keep_alive);
    ASSERT_THAT(LoadsOf(Plan()), ElementsAre(key));
    scheduler_->LoadDone(key, kStart);
    ASSERT_THAT(Plan().admit, ElementsAre(Id(id)));
    scheduler_->Start(Id(id));
  }
  static std::vector<std::string> LoadsOf(const Scheduler::Plan& plan) {
    std::vector<std::string> keys;
    for (const Scheduler::Load& load : plan.load) keys.push_back(load.key);
    return keys;
  }

 private:
  std::optional<Scheduler> scheduler_;
};

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

TEST_F(SchedulerTest, TwoEndlessAnswersTakeTurns) {
  Make({.models_max = 1, .drain_limit = seconds(10)});
  LoadWith(1, "a");
  Enqueue(2, "b");
  Time now = kStart;
  std::string loaded = "a";
  for (int turn = 0; turn < 6; ++turn) {
    (void)Plan(now);
    // Each turn of a model is longer: it computes again what it had.
    now += seconds(10 << (turn / 2));
    ASSERT_THAT(Plan(now).unload, ElementsAre(loaded));
    scheduler().RunnerReaped(loaded);
    loaded = loaded == "a" ? "b" : "a";
    ASSERT_THAT(LoadsOf(Plan(now)), ElementsAre(loaded));
    scheduler().LoadDone(loaded, now);
    ASSERT_THAT(Plan(now).admit, ElementsAre(Id(loaded == "a" ? 1 : 2)));
  }
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
  LoadWith(1, "a", kNeverUnload);
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

TEST_F(SchedulerTest, KeepAliveBeyondTheClockIsForEver) {
  Make(1);
  LoadWith(1, "a", KeepAlive::max());
  scheduler().Remove(Id(1), kStart);
  const auto plan = Plan();
  EXPECT_FALSE(plan.wake_at);
  EXPECT_THAT(plan.unload, IsEmpty());
}

TEST_F(SchedulerTest, APinnedModelIsNotUnloadedToMakeRoom) {
  Make(2);
  LoadWith(1, "a", kNeverUnload);
  LoadWith(2, "b");
  scheduler().Remove(Id(1), kStart);
  scheduler().Remove(Id(2), kStart);
  Enqueue(3, "c");
  EXPECT_THAT(Plan().unload, ElementsAre("b"));
}

TEST_F(SchedulerTest, RejectsWhenEverySlotIsPinned) {
  Make(1);
  LoadWith(1, "a", kNeverUnload);
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

// An endless answer of a model that was unloaded by name keeps neither another model nor the model itself out.
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

// Its runner said so when it was about to be stopped: in the next runner it says no more, and must not expire.
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
  scheduler().Start(Id(2));
  EXPECT_EQ(scheduler().waiting(), 2);
  EXPECT_TRUE(scheduler().Enqueue(Id(6), "a", {}, kStart));
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
  scheduler().Progress(Id(1));
  EXPECT_THAT(Plan().admit, ElementsAre(Id(2)));
  scheduler().Remove(Id(2), kStart);
  const auto last = Plan();
  EXPECT_THAT(last.admit, ElementsAre(Id(3)));
  EXPECT_EQ(last.wake_at, kStart + seconds(2));
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
  scheduler().Progress(Id(1));
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
  LoadWith(1, "a", kNeverUnload);
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
  LoadWith(1, "a", kNeverUnload);
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
    EXPECT_EQ(plan.load[0].first, Scheduler::kNoRequest);
    EXPECT_THAT(Plan(now).unload, IsEmpty()) << "even without a waiting request";
    if (deaths % 2 != 0) continue;  // it dies while it loads, too
    scheduler().LoadDone("a", now);
    EXPECT_THAT(Plan(now).unload, IsEmpty());
    EXPECT_EQ(scheduler().ReadyModels(now).at(0).expires_at, std::nullopt);
  }
}

TEST_F(SchedulerTest, APinnedModelThatCannotBeLoadedAnyMoreIsForgotten) {
  Make(1);
  LoadWith(1, "a", kNeverUnload);
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
    LoadWith(close ? 2 : 1, "a", kNeverUnload);
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
  Scheduler::Plan Estimate(uint64_t id, const std::string& key, Scheduler::MemoryEstimate estimate) {
    Enqueue(id, key);
    (void)Plan();
    scheduler().OnMemoryEstimate(key, estimate);
    return Plan();
  }
  static int64_t CacheOf(const Scheduler::Plan& plan) {
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
