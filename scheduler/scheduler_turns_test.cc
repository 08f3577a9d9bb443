// Turns of models that need the same room: a client that runs little waits briefly, whatever another one
// does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace quire::scheduler {
namespace {

using api::RequestId;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr milliseconds kPause{200};
constexpr milliseconds kFirst = 2 * kPause;  // of an answer that has not run before
constexpr seconds kWhole{10};

// Time goes on by itself; loads take none, unless a test says so.
class SchedulerTurns : public SchedulerTest {
 protected:
  void SetUp() override {
    Make({.models_max = 1, .queue_max = 100, .drain_limit = kWhole, .drain_pause = kPause});
  }
  void EnqueueFor(const std::string& party, uint64_t id, const std::string& key,
                  const std::string& member = {}) {
    ASSERT_TRUE(
        scheduler().Enqueue(Id(id), key, {}, now_, {.party = fair::PartyNamed(party), .exchange = member}));
  }
  // Returns what it admits.
  std::vector<RequestId> FinishLoad(const std::string& key, std::chrono::nanoseconds took = {}) {
    now_ += took;
    scheduler().LoadDone(key, now_);
    const auto plan = Plan(now_);
    for (const RequestId id : plan.admit) {
      scheduler().Start(id);
      scheduler().Progress(id, now_);
    }
    return plan.admit;
  }
  // The next plan unloads the model and loads the next one.
  std::vector<RequestId> Swap(const std::string& from, const std::string& to) {
    EXPECT_THAT(Plan(now_).unload, ElementsAre(from));
    scheduler().RunnerReaped(from);
    EXPECT_THAT(LoadsOf(Plan(now_)), ElementsAre(to));
    return FinishLoad(to);
  }
  std::vector<RequestId> LoadFirst(const std::string& key, std::chrono::nanoseconds took = {}) {
    EXPECT_THAT(LoadsOf(Plan(now_)), ElementsAre(key));
    return FinishLoad(key, took);
  }
  // The model goes on until then, and no longer.
  void ExpectTurn(std::chrono::nanoseconds turn) {
    EXPECT_THAT(Plan(now_).unload, IsEmpty());
    now_ += turn - milliseconds(1);
    EXPECT_THAT(Plan(now_).unload, IsEmpty());
    now_ += milliseconds(1);
  }

  Time now_ = kStart;
};

// z has an answer without end on each of two models. x sends short chats to one of them.
TEST_F(SchedulerTurns, OneClientWithEndlessAnswersOnTwoModelsHoldsUpNobody) {
  EnqueueFor("z", 1, "a");
  EnqueueFor("z", 2, "b");
  LoadFirst("a");
  ExpectTurn(kWhole);
  Swap("a", "b");
  uint64_t id = 2;
  for (int round = 0; round < 50; ++round) {
    now_ += milliseconds(100);
    EnqueueFor("x", ++id, "a");
    ExpectTurn((round == 0 ? kFirst : kPause) - milliseconds(100));  // of b, since it was loaded
    EXPECT_THAT(Swap("b", "a"), ElementsAre(Id(1), Id(id)));
    scheduler().Remove(Id(id), now_);
    ExpectTurn(kWhole);  // of a: z waits for z
    EXPECT_THAT(Swap("a", "b"), ElementsAre(Id(2)));
  }
}

// z has an answer without end on each of two models. A chat of x for which one turn is too short does not
// need two.
TEST_F(SchedulerTurns, AnAnswerThatHasNotRunBeforeHasTwoPauses) {
  for (const bool ends : {true, false}) {
    SetUp();
    EnqueueFor("z", 1, "a");
    EnqueueFor("z", 2, "b");
    LoadFirst("a");
    ExpectTurn(kWhole);
    Swap("a", "b");
    now_ += seconds(1);
    EnqueueFor("x", 3, "a");
    EXPECT_THAT(Swap("b", "a"), ElementsAre(Id(1), Id(3)));
    EnqueueFor("y", 4, "b");
    ExpectTurn(kPause);
    EXPECT_THAT(Plan(now_).unload, IsEmpty());
    now_ += kFirst - kPause - milliseconds(1);
    EXPECT_THAT(Plan(now_).unload, IsEmpty());
    if (ends) scheduler().Remove(Id(3), now_);
    if (!ends) now_ += milliseconds(1);
    EXPECT_THAT(Swap("a", "b"), ElementsAre(Id(2), Id(4)));
  }
}

TEST_F(SchedulerTurns, APartyThatRunsInTheModelWaitsAWholeTurn) {
  EnqueueFor("z", 1, "a");
  LoadFirst("a");
  EnqueueFor("z", 2, "b");
  ExpectTurn(kWhole);
  Swap("a", "b");
}

// Behind an address may be several people.
TEST_F(SchedulerTurns, AMemberOfAnAddressDoesNotWaitForTheTurnOfAnother) {
  EnqueueFor("address", 1, "a", "z");
  EnqueueFor("address", 2, "b", "z");
  LoadFirst("a");
  ExpectTurn(kWhole);  // z waits for z
  Swap("a", "b");
  EnqueueFor("address", 3, "a", "x");
  ExpectTurn(kFirst);
  EXPECT_THAT(Swap("b", "a"), ElementsAre(Id(1), Id(3)));
}

// Also of a chat that was suspended itself.
TEST_F(SchedulerTurns, APartyWaitsAsLongAsItsLongestRequestHasRun) {
  EnqueueFor("y", 1, "a");
  LoadFirst("a");
  now_ += seconds(4);
  EnqueueFor("x", 2, "b");
  ExpectTurn(kPause);
  Swap("a", "b");
  ExpectTurn(seconds(4) + kPause);  // as long as y has run
  Swap("b", "a");
  ExpectTurn(seconds(4) + kPause);  // as long as x has run: the turns grow together
  Swap("a", "b");
  ExpectTurn(2 * (seconds(4) + kPause));
  Swap("b", "a");
  ExpectTurn(kWhole);  // x has run for longer
  Swap("a", "b");
}

TEST_F(SchedulerTurns, ATurnIsNotShorterThanItsLoad) {
  EnqueueFor("z", 1, "a");
  LoadFirst("a", seconds(20));
  now_ += seconds(5);
  EnqueueFor("x", 2, "b");
  ExpectTurn(seconds(15));
  Swap("a", "b");
}

// The load waits for memory: that does not make the turn longer.
TEST_F(SchedulerTurns, ALoadBeginsWithItsMemory) {
  Make({.models_max = 2, .memory_bytes = 100, .drain_limit = kWhole, .drain_pause = kPause});
  EnqueueFor("z", 1, "a");
  (void)Plan(now_);
  now_ += minutes(1);
  scheduler().OnMemoryEstimate("a", {.fixed_bytes = 80, .cache_bytes = 10, .cache_min_bytes = 1});
  EXPECT_EQ(Plan(now_).grants.size(), 1U);
  FinishLoad("a", seconds(2));
  EnqueueFor("x", 2, "b");
  EXPECT_THAT(LoadsOf(Plan(now_)), ElementsAre("b"));
  scheduler().OnMemoryEstimate("b", {.fixed_bytes = 80, .cache_bytes = 10, .cache_min_bytes = 1});
  ExpectTurn(seconds(2));
  EXPECT_THAT(Plan(now_).unload, ElementsAre("a"));
}

TEST_F(SchedulerTurns, TwoEndlessAnswersTakeTurns) {
  EnqueueFor("z", 1, "a");
  EnqueueFor("z", 2, "b");
  LoadFirst("a");
  std::string loaded = "a";
  for (int turn = 0; turn < 20; ++turn) {
    ExpectTurn(kWhole);
    const std::string next = loaded == "a" ? "b" : "a";
    ASSERT_THAT(Swap(loaded, next), ElementsAre(Id(next == "a" ? 1 : 2)));
    loaded = next;
  }
}

// An answer whose prompt takes longer than a turn gets longer ones. Those of the other model are as long. If
// it gets on in less, there are four doublings at most.
TEST_F(SchedulerTurns, ATurnInWhichNothingNewIsComputedIsDoubled) {
  for (const bool other_gets_on : {true, false}) {
    SetUp();
    const auto load = [&](const std::string& key, uint64_t id) {
      EXPECT_THAT(LoadsOf(Plan(now_)), ElementsAre(key));
      scheduler().LoadDone(key, now_);
      EXPECT_THAT(Plan(now_).admit, ElementsAre(Id(id)));
      scheduler().Start(Id(id));
      if (id == 2 && other_gets_on) scheduler().Progress(Id(id), now_);
    };
    const auto suspend = [&](const std::string& key, std::chrono::nanoseconds turn) {
      ExpectTurn(turn);
      EXPECT_THAT(Plan(now_).unload, ElementsAre(key));
      scheduler().RunnerReaped(key);
    };
    EnqueueFor("z", 1, "a");
    EnqueueFor("z", 2, "b");
    load("a", 1);
    seconds turn = kWhole;
    for (int turns = 0; turns < 7; ++turns) {
      suspend("a", turn);
      load("b", 2);
      if (turns < 4) turn *= 2;
      suspend("b", turn);
      if (turns >= 4 && !other_gets_on) turn *= 2;
      load("a", 1);
    }
  }
}

// y's prompt takes 5 s, and x always has another short chat for the other model: y gets on, x seldom waits
// for it.
TEST_F(SchedulerTurns, AnAnswerThatIsAlwaysCutShortGetsAWholeTurnInTheEnd) {
  constexpr int kCuts = 127;
  EnqueueFor("y", 1, "a");
  EXPECT_THAT(LoadsOf(Plan(now_)), ElementsAre("a"));
  scheduler().LoadDone("a", now_);
  (void)Plan(now_);
  scheduler().Start(Id(1));
  uint64_t id = 1;
  const auto chat = [&](std::chrono::nanoseconds turn) {
    EnqueueFor("x", ++id, "b");
    ExpectTurn(turn);
    EXPECT_THAT(Swap("a", "b"), ElementsAre(Id(id)));
    scheduler().Remove(Id(id), now_);
    EXPECT_THAT(Plan(now_).unload, ElementsAre("b"));
    scheduler().RunnerReaped("b");
    EXPECT_THAT(LoadsOf(Plan(now_)), ElementsAre("a"));
    scheduler().LoadDone("a", now_);
    EXPECT_THAT(Plan(now_).admit, ElementsAre(Id(1)));
  };
  for (int cuts = 0; cuts < kCuts; ++cuts) chat(cuts == 0 ? kFirst : kPause);
  chat(kWhole);
  chat(kPause);
}

// b is to go anyway, for its own next requests: it goes in the place of a, as soon as a would have gone.
TEST_F(SchedulerTurns, UnloadsByNameMakeNoTurnLonger) {
  Make({.models_max = 2, .queue_max = 100, .drain_limit = kWhole, .drain_pause = kPause});
  EnqueueFor("y", 1, "a");
  LoadFirst("a");
  EnqueueFor("y", 2, "b");
  LoadFirst("b");
  now_ += seconds(5);
  EnqueueFor("x", 3, "c");
  EXPECT_THAT(Plan(now_).unload, IsEmpty());
  now_ += kPause / 2;
  scheduler().Unload("b");
  EnqueueFor("z", 4, "b");
  ExpectTurn(kPause / 2);
  EXPECT_THAT(Plan(now_).unload, ElementsAre("b"));
}

// However many models z asks for, x waits for one of them.
TEST_F(SchedulerTurns, PartiesTakeTurnsNotModels) {
  EnqueueFor("z", 1, "a");
  LoadFirst("a");
  for (const uint64_t id : {2, 3, 4, 5}) EnqueueFor("z", id, std::string("b") + std::to_string(id));
  EnqueueFor("x", 6, "c");
  ExpectTurn(kFirst);
  EXPECT_THAT(Swap("a", "c"), ElementsAre(Id(6))) << "z has had the room";
  EnqueueFor("x", 7, "d");
  scheduler().Remove(Id(6), now_);
  EXPECT_THAT(Swap("c", "b2"), ElementsAre(Id(2))) << "which has waited longer";
  ExpectTurn(kFirst);
  EXPECT_THAT(Swap("b2", "d"), ElementsAre(Id(7)));
  scheduler().Remove(Id(7), now_);
  EXPECT_THAT(Swap("d", "b3"), ElementsAre(Id(3)));
}

}  // namespace
}  // namespace quire::scheduler
