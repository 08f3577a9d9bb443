// Runners that die, hang, lie or do not start: what their requests hear, and that nobody else does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "scheduler/dispatcher.h"
#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

class DispatcherFaultsTest : public DispatcherFixture {
 protected:
  // The request fails because its runner is gone, and the next one gets a new runner.
  void ExpectEndsTheRunner(const std::string& prompt, const std::string& reason) {
    auto bystander = BeginReady(Spec("ok"), "stall");
    const Outcome outcome = Ask(Spec("ok"), prompt);
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.failed->code, api::ErrorCode::kRunnerDied);
    EXPECT_THAT(outcome.failed->message, HasSubstr(reason));
    EXPECT_EQ(Finish(*bystander).failed.value().code, api::ErrorCode::kRunnerDied)
        << "it had the same runner";
    auto next = Begin(Spec("ok"), "answer 2");
    EXPECT_NE(next->runner_pid(), bystander->runner_pid());
    EXPECT_EQ(Finish(*next).text, "t0 t1 ");
  }
};

TEST_F(DispatcherFaultsTest, KilledInTheMiddleOfAnswers) {
  auto other = BeginReady(Spec("ok", "other"), "stall");
  auto first = BeginReady(Spec("ok"), "stall");
  auto second = BeginReady(Spec("ok"), "stall");
  const auto waiting = loop().Spawn(first->Next());
  loop().Poll();
  ASSERT_EQ(::kill(first->runner_pid(), SIGKILL), 0);
  const api::Event event = loop().Wait(waiting);
  const api::Error error = std::get<api::Failed>(event).error;
  EXPECT_EQ(error.code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(error.message, HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(Finish(*second).failed.value().code, api::ErrorCode::kRunnerDied);

  auto next = Begin(Spec("ok"), "answer 1");
  EXPECT_NE(next->runner_pid(), first->runner_pid());
  EXPECT_EQ(Finish(*next).text, "t0 ");
  (void)Ask(Spec("ok", "other"), "answer 1");
  EXPECT_EQ(dispatcher().Loaded().at(0).running + dispatcher().Loaded().at(1).running, 1);
  other.reset();
}

TEST_F(DispatcherFaultsTest, WhatCameBeforeTheDeathIsDelivered) {
  const Outcome outcome = Ask(Spec("ok"), "die");
  EXPECT_TRUE(outcome.ready);
  EXPECT_EQ(outcome.text, "last words");
  EXPECT_THAT(outcome.failed.value().message, HasSubstr("killed by signal 9 (SIGKILL)"));
}

TEST_F(DispatcherFaultsTest, AnIdleRunnerThatDiesIsForgotten) {
  EXPECT_TRUE(Ask(Spec("ok"), "answer 1").finished);
  ASSERT_EQ(::kill(dispatcher().Loaded().at(0).runner_pid, SIGKILL), 0);
  loop().RunUntil([this] { return dispatcher().Loaded().empty() && !HasChildren(); });
  EXPECT_TRUE(Ask(Spec("ok"), "answer 1").finished);
}

TEST_F(DispatcherFaultsTest, Garbage) { ExpectEndsTheRunner("garbage", "broke the protocol"); }
TEST_F(DispatcherFaultsTest, ATornFrame) { ExpectEndsTheRunner("half-frame", "exited with status 5"); }
TEST_F(DispatcherFaultsTest, AFrameNobodyAskedFor) { ExpectEndsTheRunner("unasked", "broke the protocol"); }
TEST_F(DispatcherFaultsTest, TextBeforeItsPrompt) { ExpectEndsTheRunner("early", "before PromptReady"); }
TEST_F(DispatcherFaultsTest, AClosedLinkWithoutAnEnd) { ExpectEndsTheRunner("hang up", "closed its link"); }

TEST_F(DispatcherFaultsTest, MoreTextThanCredit) {
  auto generation = Begin(Spec("ok"), "flood");
  // The client takes nothing meanwhile, so no new credit is given.
  loop().RunUntil([this] { return dispatcher().Loaded().empty(); });
  const Outcome outcome = Finish(*generation);
  EXPECT_EQ(outcome.text, std::string(api::ipc::kInitialCredit, 'x'));
  EXPECT_EQ(outcome.failed.value().code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(outcome.failed->message, HasSubstr("more text than it has credit for"));
  EXPECT_EQ(Ask(Spec("ok"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherFaultsTest, EventsOfUnknownRequestsAreIgnored) {
  const Outcome outcome = Ask(Spec("ok"), "stranger");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.text, "");
}

// ---- loading ----

TEST_F(DispatcherFaultsTest, LoadFailureReachesAllWhoWait) {
  const auto first = Submit(Spec("fail-load"), "answer 1");
  const auto second = Submit(Spec("fail-load"), "answer 1");
  const auto load = loop().Spawn(dispatcher().Load(Spec("fail-load"), {}));
  for (const auto& task : {first, second}) {
    const api::Error error = RefusalOf(task);
    EXPECT_EQ(error.code, api::ErrorCode::kBadModel);
    EXPECT_EQ(error.message, "model.gguf: truncated tensor");
  }
  EXPECT_EQ(loop().Wait(load).error().code, api::ErrorCode::kBadModel);
  EXPECT_TRUE(dispatcher().Loaded().empty());
}

TEST_F(DispatcherFaultsTest, DeathWhileLoading) {
  const auto aborted = Submit(Spec("abort-load"), "answer 1");
  const auto exited = Submit(Spec("exit-load"), "answer 1");
  const api::Error error = RefusalOf(aborted);
  EXPECT_EQ(error.code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(error.message, HasSubstr("while it loaded abort-load: killed by signal 6 (SIGABRT)"));
  EXPECT_THAT(RefusalOf(exited).message, HasSubstr("exited with status 3"));
  EXPECT_EQ(Ask(Spec("ok"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherFaultsTest, ARunnerThatDiesRightAfterItsLoadIsNotLoadedForEver) {
  const auto task = Submit(Spec("dud"), "stall");
  loop().RunUntil([&] { return task->done(); });
  auto result = loop().Wait(task);
  const api::Error error = result ? Finish(**result).failed.value() : result.error();
  EXPECT_EQ(error.code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(error.message, HasSubstr("exited with status 4"));
}

TEST_F(DispatcherFaultsTest, LoadTimeout) {
  limits().load_timeout = milliseconds(30);
  const api::Error error = RefusalOf(Submit(Spec("hang-load"), "answer 1"));
  EXPECT_EQ(error.code, api::ErrorCode::kUnavailable);
  // On a busy machine the time may be over before the runner has said hello.
  EXPECT_THAT(error.message,
              AnyOf("loading hang-load took longer than 0.03 s", "the model runner did not start in time"));
  loop().RunUntil([] { return !HasChildren(); });
}

TEST_F(DispatcherFaultsTest, NoHelloInTime) {
  limits().load_timeout = milliseconds(30);
  const api::Error error = RefusalOf(Submit(Spec("ok", "no-hello"), "answer 1"));
  EXPECT_EQ(error.code, api::ErrorCode::kUnavailable);
}

TEST_F(DispatcherFaultsTest, AnotherVersionOfTheLink) {
  const api::Error error = RefusalOf(Submit(Spec("ok", "bad-version"), "answer 1"));
  EXPECT_EQ(error.code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(error.message, HasSubstr("version " + std::to_string(api::ipc::kVersion + 1)));
}

TEST_F(DispatcherFaultsTest, AnotherFirstFrameThanHello) {
  EXPECT_THAT(RefusalOf(Submit(Spec("ok", "rude"), "answer 1")).message,
              HasSubstr("first frame is not Hello"));
}

TEST_F(DispatcherFaultsTest, ARunnerThatCannotBeStarted) {
  Dispatcher missing(loop().executor(), "/nonexistent/quire-runner", limits());
  const auto result = loop().Run(missing.Submit(Spec("ok"), Raw("answer 1"), std::nullopt));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(result.error().message, HasSubstr("/nonexistent/quire-runner"));
  EXPECT_THAT(result.error().message, HasSubstr("No such file or directory"));
  loop().Run(missing.Drain(std::chrono::steady_clock::now()));
  ExpectNoChildren();
}

TEST_F(DispatcherFaultsTest, AStubbornRunnerIsKilledAfterItsGrace) {
  limits().stop_grace = milliseconds(20);
  EXPECT_TRUE(Ask(Spec("stubborn"), "answer 1", KeepAlive::zero()).finished);
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_EQ(Ask(Spec("ok"), "answer 1").text, "t0 ");
}

}  // namespace
}  // namespace quire::scheduler
