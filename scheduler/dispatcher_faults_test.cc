// Runners that die, hang, break the protocol or do not start: their requests get an error and no others do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "scheduler/dispatcher.h"
#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AnyOf;
using testing::HasSubstr;

class DispatcherFaultsTest : public DispatcherFixture {
 protected:
  // The request kills one runner after the other until it fails; the others continue in the next runner.
  void ExpectKillsTheRunner(const std::string& prompt, const std::string& reason) {
    auto bystander = StartReady(Spec("ok"), "stall");
    const int first_pid = bystander->runner_pid();
    const Outcome outcome = Generate(Spec("ok"), prompt);
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.failed->code, api::ErrorCode::kRunnerDied);
    EXPECT_THAT(outcome.failed->message, HasSubstr(reason));
    const api::Error again = RefusalOf(Submit(Spec("ok"), prompt));
    EXPECT_EQ(again.code, api::ErrorCode::kRunnerDied);
    EXPECT_THAT(again.message,
                HasSubstr("killed the model runner more than once; it is rejected for another"));
    auto next = StartGeneration(Spec("ok"), "answer 2");
    EXPECT_EQ(Finish(*next).text, "t0 t1 ");
    EXPECT_NE(next->runner_pid(), first_pid);
    EXPECT_EQ(next->runner_pid(), bystander->runner_pid());
  }
  static std::string Words(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "t" + std::to_string(i) + " ";
    return text;
  }
};

TEST_F(DispatcherFaultsTest, AnswersGoOnWhenTheirRunnerIsKilled) {
  auto other = StartReady(Spec("ok", "other"), "stall");
  const int other_pid = other->runner_pid();
  std::vector<std::unique_ptr<TokenStream>> answers;
  std::vector<std::string> texts;
  for (int i = 0; i < 4; ++i) {
    answers.push_back(StartReady(Spec("ok"), "answer 2000"));
    std::string& text = texts.emplace_back();
    for (int taken = 0; taken < 100 * i; ++taken) text += std::get<api::TextDelta>(Next(*answers[i])).text;
  }
  for (int deaths = 0; deaths < 3; ++deaths) {
    const int pid = answers[0]->runner_pid();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    loop().RunUntil([&] { return answers[0]->runner_pid() != pid; });
    for (size_t i = 0; i < answers.size(); ++i) {
      for (int taken = 0; taken < 300; ++taken) texts[i] += std::get<api::TextDelta>(Next(*answers[i])).text;
    }
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const Outcome outcome = Finish(*answers[i]);
    EXPECT_FALSE(outcome.failed);
    EXPECT_FALSE(outcome.ready) << "told twice";
    EXPECT_EQ(texts[i] + outcome.text, Words(2000)) << "no word missing, none twice";
  }
  EXPECT_EQ(other->runner_pid(), other_pid) << "another model does not notice";
}

TEST_F(DispatcherFaultsTest, AClientThatLeavesBetweenTwoRunnersIsForgotten) {
  auto first = StartReady(Spec("ok"), "stall");
  ASSERT_EQ(::kill(first->runner_pid(), SIGKILL), 0);
  loop().RunUntil([this] { return dispatcher().Loaded().empty(); });
  first.reset();
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherFaultsTest, ASeedThatTheClientDidNotGiveTravelsToo) {
  const Outcome outcome = Generate(Spec("ok"), "seed");
  const size_t blank = outcome.text.find(' ');
  ASSERT_NE(blank, std::string::npos);
  EXPECT_EQ(outcome.text.substr(0, blank), outcome.text.substr(blank + 1));
  EXPECT_NE(outcome.text.substr(0, 2), "-1");
}

TEST_F(DispatcherFaultsTest, WhatCameBeforeTheDeathIsDelivered) {
  const Outcome outcome = Generate(Spec("ok"), "die");
  EXPECT_TRUE(outcome.ready);
  EXPECT_EQ(outcome.text, "last words");
  EXPECT_THAT(outcome.failed.value().message, HasSubstr("killed by signal 9 (SIGKILL)"));
}

TEST_F(DispatcherFaultsTest, ACrash) { ExpectKillsTheRunner("crash", "killed by signal 6 (SIGABRT)"); }

// Two deaths while a request is alone in its runner would be proof against it if they were its own.
TEST_F(DispatcherFaultsTest, ASignalFromOutsideIsNoCrashOfTheRequest) {
  for (const int signal : {SIGSEGV, SIGUSR1, SIGKILL}) {
    auto bystander = StartGeneration(Spec("ok"), "mute");
    for (int deaths = 0; deaths < 2; ++deaths) {
      const int pid = bystander->runner_pid();
      ASSERT_EQ(::kill(pid, signal), 0);
      loop().RunUntil([&] { return bystander->runner_pid() != pid; });
    }
    bystander.reset();
    const auto again = loop().Wait(Submit(Spec("ok"), "mute"));
    EXPECT_TRUE(again) << "signal " << signal << " made it a poison request";
  }
}

// It is hashed on a thread of its own, and so are those that may be the same.
TEST_F(DispatcherFaultsTest, ACrashOfALargeRequest) {
  api::Request poison = Raw("crash");
  poison.go_template = std::string(size_t{1} << 20, 't');
  const auto submit = [&](const api::Request& request) {
    return loop().Wait(loop().Spawn(dispatcher().Submit(Spec("ok"), request, {})));
  };
  auto first = submit(poison);
  ASSERT_TRUE(first);
  ASSERT_TRUE(Finish(**first).failed);
  const auto again = submit(poison);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("killed the model runner more than once"));
  api::Request alike = poison;
  alike.go_template.front() = 'a';
  alike.prompt = api::RawPrompt{"refus"};
  EXPECT_TRUE(submit(alike)) << "of the same outline";
  alike.go_template += 'a';
  EXPECT_TRUE(submit(alike)) << "of another";
}

TEST_F(DispatcherFaultsTest, AStoppedRunnerIsReplaced) {
  limits().stall_timeout = milliseconds(3000);
  limits().probation_time = milliseconds(1500);  // longer than the second between two heartbeats
  ExpectKillsTheRunner("stop", "sent no heartbeat for 3 s and was killed");
}

TEST_F(DispatcherFaultsTest, AHungRunnerIsReplaced) {
  limits().stall_timeout = milliseconds(3000);
  limits().probation_time = milliseconds(1500);  // longer than the second between two heartbeats
  ExpectKillsTheRunner("circle", "hung for 3 s and was killed");
}

// The hang is noticed seconds after its client has left.
TEST_F(DispatcherFaultsTest, AHangIsNotHeldAgainstOthersThanWhoHungUp) {
  limits().stall_timeout = milliseconds(3000);
  limits().probation_time = milliseconds(100);
  auto bystander = StartGeneration(Spec("ok"), "mute");
  const auto replaced = [&, pid = bystander->runner_pid()] { return bystander->runner_pid() != pid; };
  ASSERT_EQ(::kill(bystander->runner_pid(), SIGKILL), 0);
  loop().RunUntil(replaced);
  auto hangs = StartGeneration(Spec("ok"), "circle");
  hangs.reset();
  loop().RunUntil([&, pid = bystander->runner_pid()] { return bystander->runner_pid() != pid; });
  bystander.reset();
  EXPECT_TRUE(loop().Wait(Submit(Spec("ok"), "mute"))) << "it is poison";
}

// The service manager's watchdog uses this.
TEST_F(DispatcherFaultsTest, ARunnerThatShouldHaveBeenReplacedIsNoticed) {
  auto answer = StartReady(Spec("ok"), "stall");
  const auto now = steady_clock::now();
  EXPECT_FALSE(dispatcher().Stuck(now));
  // Nothing is read until then: the loop does not run.
  const auto later = now + 2 * limits().stall_timeout + milliseconds(1001);
  EXPECT_TRUE(dispatcher().Stuck(later));
  const int pid = answer->runner_pid();
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  loop().RunUntil([&] { return answer->runner_pid() != pid; });
  EXPECT_FALSE(dispatcher().Stuck(later)) << "the next runner has just started";
}

TEST_F(DispatcherFaultsTest, ARunnerThatIsStoppedOnceGoesUnnoticed) {
  limits().stall_timeout = milliseconds(3000);
  auto answer = StartReady(Spec("ok"), "answer 600");
  std::string text = std::get<api::TextDelta>(Next(*answer)).text;
  ASSERT_EQ(::kill(answer->runner_pid(), SIGSTOP), 0);
  text += Finish(*answer).text;
  EXPECT_EQ(text, Words(600));
}

TEST_F(DispatcherFaultsTest, AnIdleRunnerThatDiesIsUnloaded) {
  EXPECT_TRUE(Generate(Spec("ok"), "answer 1").finished);
  ASSERT_EQ(::kill(dispatcher().Loaded().at(0).runner_pid, SIGKILL), 0);
  loop().RunUntil([this] { return dispatcher().Loaded().empty() && !HasChildren(); });
  EXPECT_TRUE(Generate(Spec("ok"), "answer 1").finished);
}

TEST_F(DispatcherFaultsTest, Garbage) { ExpectKillsTheRunner("garbage", "protocol error"); }
TEST_F(DispatcherFaultsTest, ATornFrame) { ExpectKillsTheRunner("half-frame", "exited with status 5"); }
TEST_F(DispatcherFaultsTest, AnUnexpectedMessage) { ExpectKillsTheRunner("unasked", "protocol error"); }
TEST_F(DispatcherFaultsTest, TextBeforeItsPrompt) { ExpectKillsTheRunner("early", "before PromptReady"); }
// That it ends is known a second later: until then requests come that are not why.
TEST_F(DispatcherFaultsTest, AClosedLinkWithoutAnExit) {
  ExpectKillsTheRunner("hang up", "closed the connection");
}

TEST_F(DispatcherFaultsTest, MoreTextThanCredit) {
  auto stream = StartGeneration(Spec("ok"), "flood");
  // The client takes nothing meanwhile, so no new credit is given.
  loop().RunUntil([this] { return dispatcher().Loaded().empty(); });
  const Outcome outcome = Finish(*stream);
  EXPECT_EQ(outcome.text, std::string(api::ipc::kInitialCredit, 'x'));
  EXPECT_EQ(outcome.failed.value().code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(outcome.failed->message, HasSubstr("protocol error"));
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
}

// 40 MiB that nobody takes: the answer ends with an error of its own, and the runner goes on.
TEST_F(DispatcherFaultsTest, MoreBytesThanAreHeldEndTheirRequestAlone) {
  auto stream = StartGeneration(Spec("ok"), "bulk");
  const int pid = stream->runner_pid();
  loop().RunUntil(
      [this] { return dispatcher().Loaded().empty() || dispatcher().Loaded().at(0).running == 0; });
  const Outcome outcome = Finish(*stream);
  EXPECT_GT(outcome.text.size(), size_t{30} << 20);
  ASSERT_TRUE(outcome.failed);
  EXPECT_EQ(outcome.failed->code, api::ErrorCode::kTooLarge);
  auto next = StartGeneration(Spec("ok"), "answer 1");
  EXPECT_EQ(next->runner_pid(), pid);
  EXPECT_EQ(Finish(*next).text, "t0 ");
}

TEST_F(DispatcherFaultsTest, EventsOfUnknownRequestsAreIgnored) {
  const Outcome outcome = Generate(Spec("ok"), "stranger");
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
  EXPECT_THAT(error.message, HasSubstr("while loading abort-load: killed by signal 6 (SIGABRT)"));
  EXPECT_THAT(RefusalOf(exited).message, HasSubstr("exited with status 3"));
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherFaultsTest, ARunnerThatIsKilledWhileItLoadsIsReplaced) {
  EXPECT_EQ(Generate(Spec("killed-once"), "answer 1").text, "t0 ");
}

// A signal from outside cannot be told from a fault before the runner has greeted: neither is the model's.
TEST_F(DispatcherFaultsTest, ARunnerThatDiesBeforeItGreetsIsReplacedAFewTimes) {
  EXPECT_EQ(Generate(Spec("ok", "fault-at-first-start"), "answer 1").text, "t0 ");
  const api::Error error = RefusalOf(Submit(Spec("other", "faults-at-start"), "answer 1"));
  EXPECT_EQ(error.code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(error.message, HasSubstr("died during startup: killed by signal 6 (SIGABRT)"));
}

TEST_F(DispatcherFaultsTest, ARunnerThatDiesRightAfterItsLoadIsNotLoadedForever) {
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
              HasSubstr("first message is not Hello"));
}

TEST_F(DispatcherFaultsTest, ARunnerThatCannotBeStarted) {
  Dispatcher missing(loop().executor(), "/nonexistent/quire-runner", limits());
  const auto result = loop().Run(missing.Submit(Spec("ok"), Raw("answer 1"), std::nullopt));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(result.error().message, HasSubstr("/nonexistent/quire-runner"));
  EXPECT_THAT(result.error().message, HasSubstr("No such file or directory"));
  loop().Run(missing.Drain(steady_clock::now()));
  ExpectNoChildren();
}

TEST_F(DispatcherFaultsTest, AStubbornRunnerIsKilledAfterItsGrace) {
  limits().stop_grace = milliseconds(20);
  EXPECT_TRUE(Generate(Spec("stubborn"), "answer 1", KeepAlive::zero()).finished);
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
}

}  // namespace
}  // namespace quire::scheduler
