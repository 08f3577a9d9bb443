// Which request killed a runner, and who waits until that is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace quire::scheduler {
namespace {

using api::RequestId;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// One model; `now` moves on where a runner is restarted late.
class QuarantineTest : public SchedulerTest {
 protected:
  void SetUp() override { Make(/*models_max=*/1, /*queue_max=*/1000); }
  void Add(uint64_t id, const std::string& party, const std::string& member = {}) {
    ASSERT_TRUE(
        scheduler().Enqueue(Id(id), "m", {}, now, {.party = fair::PartyNamed(party), .exchange = member}));
  }
  void Load() {
    auto plan = Plan(now);
    while (plan.load.empty()) {
      ASSERT_TRUE(plan.wake_at) << "the model is not loaded";
      now = *plan.wake_at;
      plan = Plan(now);
    }
    scheduler().LoadDone("m", now);
  }
  // Requests that fail.
  std::vector<RequestId> Die(ExitCause cause = ExitCause::kCrashed, std::optional<DeathTime> died = {}) {
    auto lost = scheduler().RunnerStopping("m", cause, now, died);
    scheduler().RunnerReaped("m");
    return lost;
  }
  std::vector<RequestId> Admitted() { return Plan(now).admit; }
  void Prove(uint64_t id) { scheduler().Progress(Id(id), now); }
  // It was alone in a runner that died.
  void AddQuarantined(uint64_t id, const std::string& party, ExitCause cause = ExitCause::kCrashed) {
    Add(id, party);
    Load();
    ASSERT_EQ(Admitted().size(), 1U);
    ASSERT_THAT(Die(cause), IsEmpty());
  }

  Time now = kStart;
};

TEST_F(QuarantineTest, AFloodOfOnePartyHoldsUpNobodyElse) {
  constexpr uint64_t kFlood = 384, kOther = 500, kNew = 501;
  for (uint64_t id = 1; id <= kFlood; ++id) Add(id, "flood");
  Add(kOther, "other");
  Load();
  ASSERT_EQ(Admitted().size(), kFlood + 1);
  ASSERT_THAT(Die(ExitCause::kKilled), IsEmpty());
  Add(kNew, "new");
  Add(kNew + 1, "flood");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(kNew))) << "it was in no runner that died";
  now += milliseconds(100);
  EXPECT_THAT(Admitted(), IsEmpty());
  Prove(kNew);
  EXPECT_THAT(Admitted(), ElementsAre(Id(kOther))) << "its party has had no turn";
  Prove(kOther);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  Add(kNew + 2, "new");
  Add(kNew + 3, "other");
  Prove(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(kNew + 2), Id(kNew + 3)));
}

TEST_F(QuarantineTest, AnotherExchangeOfTheSameAddressIsNotBehindItsQuarantine) {
  Add(1, "address", "exchange 1");
  Add(2, "address", "exchange 2");
  Load();
  ASSERT_EQ(Admitted().size(), 2U);
  ASSERT_THAT(Die(), IsEmpty());
  Add(3, "address", "exchange 3");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  Prove(1);
  EXPECT_THAT(Admitted(), ElementsAre(Id(3)));
}

TEST_F(QuarantineTest, TurnsOutliveRunners) {
  for (const uint64_t id : {1, 2, 3}) Add(id, "flood");
  Add(4, "other");
  Load();
  ASSERT_EQ(Admitted().size(), 4U);
  ASSERT_THAT(Die(), IsEmpty());
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  EXPECT_THAT(Die(), ElementsAre(Id(1)));
  Add(5, "flood");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(4))) << "one that kills has had the turn of its party";
}

TEST_F(QuarantineTest, ANewcomersKillIsHeldAgainstNobody) {
  AddQuarantined(1, "slow", ExitCause::kKilled);
  Add(2, "killer");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  now += seconds(1);
  EXPECT_THAT(Die(), IsEmpty());
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(7);
  EXPECT_THAT(Admitted(), IsEmpty()) << "its probation is longer";
  Prove(1);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  EXPECT_THAT(Die(), ElementsAre(Id(2)));
}

TEST_F(QuarantineTest, ARunnerThatHangsDoesSoForWhatItHadThen) {
  AddQuarantined(1, "hangs");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  const Time hung_since = now + seconds(1);
  now += seconds(2);
  Add(2, "other");
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  now += seconds(6);
  EXPECT_THAT(Die(ExitCause::kCrashed, {{hung_since, hung_since}}), ElementsAre(Id(1)));
}

// The last of several candidates goes first, alone.
TEST_F(QuarantineTest, TheLastCandidateIsTriedFirst) {
  for (const uint64_t id : {1, 2, 3}) Add(id, "a");
  Load();
  ASSERT_EQ(Admitted().size(), 3U);
  ASSERT_THAT(Die(), IsEmpty());
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  EXPECT_THAT(Die(), IsEmpty()) << "1 and 2 are candidates";
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  EXPECT_THAT(Die(), ElementsAre(Id(2)));
}

TEST_F(QuarantineTest, AKillerThatHangsUpIsHeldAgainstNobody) {
  AddQuarantined(1, "slow", ExitCause::kKilled);
  Add(2, "killer");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  now += seconds(1);
  scheduler().Abandon(Id(2), now);
  now += seconds(1);
  EXPECT_THAT(Die(), IsEmpty());
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(1);
  EXPECT_THAT(Die(), ElementsAre(Id(1))) << "who left is in no later runner";
}

TEST_F(QuarantineTest, WhoLeftLongAgoKillsNoRunner) {
  AddQuarantined(1, "slow");
  Add(2, "leaves");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  scheduler().Abandon(Id(2), now);
  now += milliseconds(2001);
  EXPECT_THAT(Die(), ElementsAre(Id(1)));
}

// A hang is noticed seconds later, and when it began is known to within seconds.
TEST_F(QuarantineTest, AKillerThatHangsUpBeforeTheHangIsNoticedIsHeldAgainstNobody) {
  AddQuarantined(1, "slow");
  Add(2, "killer");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  const Time last_progress = now;
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  scheduler().Abandon(Id(2), now);
  for (uint64_t id = 3; id < 1000; ++id) {
    Add(id, "killer");
    now += milliseconds(5);
    EXPECT_THAT(Admitted(), ElementsAre(Id(id)));
    scheduler().Abandon(Id(id), now);
  }
  now += seconds(5);
  const DeathTime hung{last_progress - seconds(10), last_progress + seconds(2)};
  EXPECT_THAT(Die(ExitCause::kCrashed, hung), IsEmpty());
}

// One that has tokens is no newcomer, but the others are not alone with the runner.
TEST_F(QuarantineTest, WhoLeavesWithTokensMayHaveKilledTheRunnerToo) {
  AddQuarantined(1, "slow");
  Add(2, "killer");
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  Prove(2);
  scheduler().Abandon(Id(2), now);
  now += milliseconds(10);
  EXPECT_THAT(Die(), IsEmpty());
}

TEST_F(QuarantineTest, AProbationBeginsAgainWhenTheRunnerIsSentTheRequest) {
  AddQuarantined(1, "large");
  Add(2, "other");
  Load();
  EXPECT_THAT(scheduler().NextPlan(now).admit, ElementsAre(Id(1)));
  now += milliseconds(1999);
  EXPECT_THAT(Admitted(), IsEmpty()) << "1 waits for room in the runner";
  EXPECT_TRUE(scheduler().Sent(Id(1), now));
  now += milliseconds(1999);
  EXPECT_THAT(Admitted(), IsEmpty());
  now += milliseconds(1);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  EXPECT_THAT(Die(), IsEmpty()) << "2 is a newcomer";
}

TEST_F(QuarantineTest, NobodyWaitsForARequestThatIsNotSent) {
  AddQuarantined(1, "large");
  Add(2, "other");
  Load();
  EXPECT_THAT(scheduler().NextPlan(now).admit, ElementsAre(Id(1)));
  now += seconds(2);
  EXPECT_THAT(Admitted(), ElementsAre(Id(2)));
  EXPECT_FALSE(scheduler().Sent(Id(1), now)) << "its turn is over";
}

TEST_F(QuarantineTest, WhatARunnerWasNotSentDidNotKillIt) {
  AddQuarantined(1, "large");
  Load();
  EXPECT_THAT(scheduler().NextPlan(now).admit, ElementsAre(Id(1)));
  Add(2, "new");
  EXPECT_THAT(Die(), IsEmpty());
  Load();
  EXPECT_THAT(Admitted(), ElementsAre(Id(1)));
  EXPECT_THAT(Die(), ElementsAre(Id(1)));
}

// Requests that compute something after a while, and others that kill their runner after a while, or make it
// hang, from several parties. Some are sent to it late. The clients of some leave.
class Scene {
 public:
  explicit Scene(uint32_t seed) : random_(seed) {
    const int parties = 1 + Below(3);
    for (int i = 2 + Below(12); i > 0; --i) {
      const bool kills = Below(3) == 0;
      const bool slow = Below(2) == 0;
      requests_.push_back({.party = std::to_string(Below(parties)),
                           .comes = kStart + seconds(Below(2) == 0 ? 0 : Below(30)),
                           .takes = milliseconds(slow ? Below(30'000) : 1 + Below(100)),
                           .travels = milliseconds(Below(3) == 0 ? Below(5'000) : 0),
                           .stays = Below(3) == 0 ? std::optional(milliseconds(Below(10'000))) : std::nullopt,
                           .kills = kills,
                           .hangs = kills && Below(2) == 0});
    }
    std::ranges::stable_sort(requests_, {}, &Request::comes);
  }

  void Play() {
    for (size_t events = 0; events < 10'000; ++events) {
      if (std::ranges::all_of(requests_, &Request::done)) return;
      Arrive();
      Apply(scheduler_.NextPlan(now_));
      ASSERT_EQ(scheduler_.CheckInvariants(), "");
      Advance();
      if (testing::Test::HasFatalFailure()) return;
    }
    FAIL() << "a request that kills is never found";
  }

 private:
  static constexpr seconds kHangNoticed{10};
  struct Request {
    std::string party;
    Time comes;
    milliseconds takes;                 // in a runner
    milliseconds travels;               // to it
    std::optional<milliseconds> stays;  // its client, once it is admitted; nothing: to the end
    bool kills = false;
    bool hangs = false;  // and nothing in the runner goes on, which is noticed later
    bool queued = false;
    bool done = false;
    std::optional<Time> arrives = {}, acts = {}, leaves = {};
  };
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }

  void Arrive() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      if (request.queued || request.comes > now_) continue;
      request.queued = true;
      ASSERT_TRUE(scheduler_.Enqueue(Id(i), "m", {}, now_, {.party = fair::PartyNamed(request.party)}));
    }
  }
  void Apply(const scheduler::Plan& plan) {
    wake_at_ = plan.wake_at;
    for (const RequestId id : plan.admit) {
      Request& request = requests_[static_cast<size_t>(id)];
      request.arrives = now_ + request.travels;
      if (request.stays) request.leaves = now_ + *request.stays;
    }
    if (plan.load.empty()) return;
    scheduler_.LoadDone("m", now_);
    wake_at_ = now_;
  }
  // To what happens next.
  void Advance() {
    std::optional<Time> next = wake_at_;
    const auto consider = [&next](Time time) { next = std::min(next.value_or(time), time); };
    for (const Request& request : requests_) {
      if (!request.queued) consider(request.comes);
      for (const auto& time : {request.arrives, request.leaves}) {
        if (time) consider(*time);
      }
      if (request.acts && !hung_since_) consider(*request.acts);
    }
    if (hung_since_) consider(*hung_since_ + kHangNoticed);
    ASSERT_TRUE(next) << "nothing happens any more";
    now_ = std::max(now_, *next);
    if (hung_since_ && now_ >= *hung_since_ + kHangNoticed)
      return Kill(DeathTime{*hung_since_ - seconds(10), *hung_since_ + seconds(2)});
    for (size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      const auto is_due = [this](const std::optional<Time>& time) { return time && *time <= now_; };
      if (is_due(request.arrives)) return ArriveInRunner(i);
      if (is_due(request.leaves)) return Disconnect(i);
      if (is_due(request.acts) && !hung_since_) return Act(i);
    }
  }
  void ArriveInRunner(size_t index) {
    Request& request = requests_[index];
    scheduler_.Sent(Id(index), now_);
    request.arrives.reset();
    request.acts = now_ + request.takes;
  }
  // The runner learns it some time later.
  void Disconnect(size_t index) {
    Request& request = requests_[index];
    scheduler_.Abandon(Id(index), now_);
    const bool kills_yet = request.kills && request.acts && *request.acts <= now_ + seconds(2);
    if (!kills_yet) request.acts.reset();
    request.arrives.reset();
    request.leaves.reset();
    request.done = true;
  }
  void Act(size_t index) {
    Request& request = requests_[index];
    if (request.hangs) hung_since_ = now_;
    if (request.hangs) return;
    if (request.kills) return Kill({});
    scheduler_.Progress(Id(index), now_);
    scheduler_.Remove(Id(index), now_);
    request.acts.reset();
    request.leaves.reset();
    request.done = true;
  }
  void Kill(const std::optional<DeathTime>& died) {
    hung_since_.reset();
    for (const RequestId id : scheduler_.RunnerStopping("m", ExitCause::kCrashed, now_, died)) {
      Request& request = requests_[static_cast<size_t>(id)];
      ASSERT_TRUE(request.kills) << "a bystander fails";
      request.done = true;
    }
    for (Request& request : requests_) {
      request.arrives.reset();
      request.acts.reset();
      request.leaves.reset();
    }
    scheduler_.RunnerReaped("m");
  }

  std::mt19937 random_;
  std::vector<Request> requests_;
  Scheduler scheduler_{SchedulerOptions{.models_max = 1}};
  Time now_ = kStart;
  std::optional<Time> wake_at_;
  std::optional<Time> hung_since_;
};

TEST(Quarantine, FindsEveryRequestThatKillsAndFailsNoOther) {
  for (uint32_t seed = 1; seed <= 2000 && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Scene(seed).Play();
  }
}

}  // namespace
}  // namespace quire::scheduler
