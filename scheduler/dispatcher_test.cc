// Loading, scheduling and answering, with fake runner processes.
#include "scheduler/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "scheduler/scheduler.h"
#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr KeepAlive kForEver{-1};

class DispatcherTest : public DispatcherFixture {};

TEST_F(DispatcherTest, AnswersWithTheRunnersEventsInOrder) {
  auto stream = StartGeneration(Spec("ok"), "answer 3");
  EXPECT_GT(stream->load_duration().count(), 0);
  EXPECT_EQ(stream->runner_pid(), dispatcher().Loaded().at(0).runner_pid);
  const Outcome outcome = Finish(*stream);
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.ready->prompt_tokens, 11);
  EXPECT_EQ(outcome.text, "t0 t1 t2 ");
  EXPECT_EQ(outcome.finished->usage.output_tokens, 3);
}

TEST_F(DispatcherTest, PassesARequestsOwnFailureOn) {
  const Outcome outcome = Generate(Spec("ok"), "refuse");
  ASSERT_TRUE(outcome.failed);
  EXPECT_EQ(outcome.failed->code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherTest, CreditKeepsALongAnswerFlowing) {
  const int deltas = 5 * api::ipc::kInitialCredit + 17;
  auto stream = StartGeneration(Spec("ok"), "answer " + std::to_string(deltas));
  const Outcome outcome = Finish(*stream);
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finished->usage.output_tokens, deltas);
  EXPECT_THAT(outcome.text, HasSubstr("t" + std::to_string(deltas - 1) + " "));
}

TEST_F(DispatcherTest, ALoadIsListedWithItsProgressUntilItIsDone) {
  MakeGate();
  const auto task = Submit(Spec("gate-load"), "answer 2");
  loop().RunUntil(
      [this] { return !dispatcher().Loading().empty() && dispatcher().Loading()[0].fraction > 0; });
  const LoadingModel model = dispatcher().Loading()[0];
  EXPECT_EQ(model.fraction, 0.25F);
  EXPECT_EQ(model.stage, "opening the gate");
  EXPECT_EQ(model.spec.key, Spec("gate-load").key);
  EXPECT_GT(model.runner_pid, 0);
  EXPECT_THAT(dispatcher().Loaded(), IsEmpty());
  OpenGate();
  loop().RunUntil([this] { return !dispatcher().Loaded().empty(); });
  EXPECT_THAT(dispatcher().Loading(), IsEmpty());
}

TEST_F(DispatcherTest, OneLoadHoweverManyAsk) {
  MakeGate();
  std::vector<TokenStreamTask> tasks;
  for (int i = 0; i < 8; ++i) tasks.push_back(Submit(Spec("gate-load"), "answer 2"));
  loop().Poll();
  OpenGate();  // a second runner would wait at the gate forever
  std::set<int> pids;
  for (const auto& task : tasks) {
    auto result = loop().Wait(task);
    ASSERT_TRUE(result);
    pids.insert((*result)->runner_pid());
    EXPECT_EQ(Finish(**result).text, "t0 t1 ");
  }
  EXPECT_EQ(pids.size(), 1U);
}

TEST_F(DispatcherTest, LoadsWithoutARequest) {
  const auto first = loop().Run(dispatcher().Load(Spec("ok"), kForEver));
  ASSERT_TRUE(first);
  EXPECT_GT(first->count(), 0);
  ASSERT_THAT(LoadedKeys(), ElementsAre("ok"));
  const LoadedModel model = dispatcher().Loaded()[0];
  EXPECT_EQ(model.running, 0);
  EXPECT_EQ(model.num_ctx, 4096);
  EXPECT_EQ(model.size_bytes, 1234);
  EXPECT_EQ(model.info.architecture, "fake");
  EXPECT_FALSE(model.expires_at);
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok"), hours(1))));
  EXPECT_TRUE(dispatcher().Loaded()[0].expires_at);
  EXPECT_EQ(dispatcher().Loaded()[0].runner_pid, model.runner_pid);
}

TEST_F(DispatcherTest, ListsTheLongestLivedFirst) {
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok", "short"), hours(1))));
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok", "forever"), kForEver)));
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok", "long"), hours(2))));
  EXPECT_THAT(LoadedKeys(), ElementsAre("forever", "long", "short"));
}

TEST_F(DispatcherTest, DecidesTheContextWithoutReloading) {
  const auto ask = [this](int32_t num_ctx) {
    api::Request request = Raw("num_ctx");
    request.params.num_ctx = num_ctx;
    auto result = loop().Run(dispatcher().Submit(Spec("ok"), std::move(request), std::nullopt));
    return Finish(**result).text + " " + std::to_string(dispatcher().Loaded().at(0).num_ctx);
  };
  EXPECT_EQ(ask(0), "4096 4096") << "the default";
  const int pid = dispatcher().Loaded().at(0).runner_pid;
  EXPECT_EQ(ask(6000), "6000 6000");
  EXPECT_EQ(ask(100000), "8192 8192") << "no more than the model was trained for";
  EXPECT_EQ(dispatcher().Loaded().at(0).runner_pid, pid);
}

TEST_F(DispatcherTest, ATextThatCannotFitIsNotSentToTheRunner) {
  api::Request request = Raw("answer 1");
  std::get<api::RawPrompt>(request.prompt).text += std::string(size_t{20} << 20, ' ');
  for (const auto overflow : {api::Overflow::kRefuse, api::Overflow::kTruncate}) {
    request.overflow = overflow;
    const auto result = loop().Run(dispatcher().Submit(Spec("ok"), request, std::nullopt));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, api::ErrorCode::kContextLengthExceeded);
  }
}

TEST_F(DispatcherTest, TwoModelsRunSideBySide) {
  auto a = StartReady(Spec("ok", "a"), "stall");
  EXPECT_EQ(Generate(Spec("ok", "b"), "answer 1").text, "t0 ");
  EXPECT_NE(dispatcher().Loaded().at(0).runner_pid, dispatcher().Loaded().at(1).runner_pid);
}

// ---- keep-alive and unloading ----

TEST_F(DispatcherTest, UnloadsWhenKeepAliveIsOver) {
  EXPECT_TRUE(Generate(Spec("ok"), "answer 1", milliseconds(1)).finished);
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_THAT(LoadedKeys(), IsEmpty());
  EXPECT_TRUE(Generate(Spec("ok"), "answer 1").finished) << "and loads again";
}

TEST_F(DispatcherTest, KeepAliveZeroUnloadsRightAfterTheLastRequest) {
  auto stalled = StartReady(Spec("ok"), "stall");
  EXPECT_TRUE(Generate(Spec("ok"), "answer 1", KeepAlive::zero()).finished);
  loop().Poll();
  EXPECT_THAT(LoadedKeys(), ElementsAre("ok")) << "one request still runs";
  stalled.reset();
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_THAT(LoadedKeys(), IsEmpty());
}

TEST_F(DispatcherTest, UnloadLetsRunningRequestsEnd) {
  auto stream = StartReady(Spec("ok"), "stall");
  const int pid = stream->runner_pid();
  dispatcher().Unload("ok");
  dispatcher().Unload("unknown");
  const auto next = Submit(Spec("ok"), "answer 1");
  loop().Poll();
  EXPECT_FALSE(next->done()) << "it waits for a new runner";
  stream.reset();
  auto result = loop().Wait(next);
  ASSERT_TRUE(result);
  EXPECT_NE((*result)->runner_pid(), pid);
  EXPECT_EQ(Finish(**result).text, "t0 ");
}

TEST_F(DispatcherTest, UnloadsTheLeastRecentlyUsedToMakeRoom) {
  limits().models_max = 2;
  EXPECT_TRUE(Generate(Spec("ok", "a"), "answer 1").finished);
  EXPECT_TRUE(Generate(Spec("ok", "b"), "answer 1").finished);
  EXPECT_TRUE(Generate(Spec("ok", "a"), "answer 1").finished);
  EXPECT_TRUE(Generate(Spec("ok", "c"), "answer 1").finished);
  EXPECT_THAT(LoadedKeys(), testing::UnorderedElementsAre("a", "c"));
}

TEST_F(DispatcherTest, WaitsForRunningRequestsWhenNoModelIsIdle) {
  limits().models_max = 1;
  auto a = StartReady(Spec("ok", "a"), "stall");
  const auto b = Submit(Spec("ok", "b"), "answer 1");
  loop().Poll();
  EXPECT_FALSE(b->done());
  a.reset();
  auto result = loop().Wait(b);
  ASSERT_TRUE(result);
  EXPECT_EQ(Finish(**result).text, "t0 ");
  EXPECT_THAT(LoadedKeys(), ElementsAre("b"));
}

TEST_F(DispatcherTest, RefusesWhenEveryLoadedModelIsPinned) {
  limits().models_max = 1;
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok", "a"), kForEver)));
  EXPECT_EQ(RefusalOf(Submit(Spec("ok", "b"), "answer 1")).code, api::ErrorCode::kUnavailable);
  dispatcher().Unload("a");
  EXPECT_EQ(Generate(Spec("ok", "b"), "answer 1").text, "t0 ");
}

// ---- admission ----

TEST_F(DispatcherTest, RefusesAtOnceWhenTheQueueIsFull) {
  limits().queue_max = 2;
  auto running = StartReady(Spec("ok"), "stall");  // started: does not wait
  auto queued = StartGeneration(Spec("ok"), "mute");
  const auto loading = Submit(Spec("hang-load"), "answer 1");
  loop().Poll();
  for (const char* model : {"ok", "hang-load", "other"}) {
    const api::Error error = RefusalOf(Submit(Spec(model), "answer 1"));
    EXPECT_EQ(error.code, api::ErrorCode::kOverloaded);
    EXPECT_EQ(error.message, "server busy, please try again.  maximum pending requests exceeded");
  }
  queued.reset();
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherTest, ThePlaceOfAPartyAboveItsShareGoesToAnother) {
  limits().queue_max = 2;
  const auto submit = [this](const std::string& party, const std::string& prompt) {
    api::Request request = Raw(prompt);
    request.client.party = fair::PartyNamed(party);
    return loop().Spawn(dispatcher().Submit(Spec("ok"), std::move(request), {}));
  };
  const auto first = loop().Wait(submit("alice", "mute")), newest = loop().Wait(submit("alice", "mute"));
  EXPECT_EQ(RefusalOf(submit("alice", "answer 1")).message, kBusy);
  auto other = loop().Wait(submit("bob", "answer 1"));
  ASSERT_TRUE(first && newest && other);
  EXPECT_EQ(Finish(**newest).failed->code, api::ErrorCode::kOverloaded) << "though its runner has it";
  EXPECT_EQ(Finish(**other).text, "t0 ");
}

TEST_F(DispatcherTest, ATextThatCannotFitIsRefusedBeforeItWaits) {
  constexpr size_t kBytes = 1100 << 10;
  const auto submit = [this](int32_t num_ctx, size_t bytes) {
    api::Request request = Raw(std::string(bytes, 'x'));
    request.params.num_ctx = num_ctx;
    request.overflow = api::Overflow::kRefuse;
    return loop().Spawn(dispatcher().Submit(Spec("ok"), std::move(request), {}));
  };
  const api::Error refused = RefusalOf(submit(512, kBytes));
  EXPECT_EQ(refused.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(refused.tokens_max, 512);
  EXPECT_TRUE(dispatcher().Loading().empty()) << "nothing is loaded for it";
  EXPECT_FALSE(HasChildren());
  const auto unknown = submit(0, kBytes);
  loop().RunUntil([this] { return !dispatcher().Loading().empty(); });
  EXPECT_EQ(RefusalOf(unknown).code, api::ErrorCode::kContextLengthExceeded) << "once it is loaded";
}

// ---- clients that leave ----

TEST_F(DispatcherTest, AClientThatLeavesTheQueueIsForgotten) {
  limits().models_max = 1;
  auto a = StartReady(Spec("ok", "a"), "stall");
  const auto b = Submit(Spec("ok", "b"), "answer 1");
  loop().Poll();
  b->Cancel();
  EXPECT_EQ(RefusalOf(b).code, api::ErrorCode::kCancelled);
  a.reset();
  loop().Poll();
  EXPECT_THAT(LoadedKeys(), ElementsAre("a")) << "no request needs its slot any more";
}

TEST_F(DispatcherTest, ALoadEndsWithItsLastClient) {
  const auto first = Submit(Spec("hang-load"), "answer 1");
  const auto second = loop().Spawn(dispatcher().Load(Spec("hang-load"), std::nullopt));
  loop().RunUntil([] { return HasChildren(); });
  first->Cancel();
  EXPECT_EQ(RefusalOf(first).code, api::ErrorCode::kCancelled);
  loop().Poll();
  EXPECT_TRUE(HasChildren()) << "someone still waits for it";
  second->Cancel();
  EXPECT_EQ(loop().Wait(second).error().code, api::ErrorCode::kCancelled);
  loop().RunUntil([] { return !HasChildren(); });
}

TEST_F(DispatcherTest, AClientThatLeavesARunningRequestCancelsItInTheRunner) {
  auto witness = StartReady(Spec("ok"), "stall");
  auto stream = StartReady(Spec("ok"), "stall");
  const auto next = loop().Spawn(stream->Next());
  loop().Poll();
  next->Cancel();
  EXPECT_THROW(loop().Wait(next), boost::system::system_error);
  EXPECT_EQ(dispatcher().Loaded().at(0).running, 2) << "it may wait for the next event again";
  stream.reset();
  EXPECT_EQ(dispatcher().Loaded().at(0).running, 1);
  const api::Event heard = Next(*witness);
  EXPECT_EQ(std::get<api::TextDelta>(heard).text, "another was cancelled");
}

TEST_F(DispatcherTest, AnAnswerThatNobodyTookIsCancelled) {
  auto witness = StartReady(Spec("ok"), "stall");
  {
    const auto task = Submit(Spec("ok"), "stall");
    loop().RunUntil([&] { return task->done(); });
  }
  EXPECT_EQ(std::get<api::TextDelta>(Next(*witness)).text, "another was cancelled");
  EXPECT_EQ(dispatcher().Loaded().at(0).running, 1);
}

// ---- the end ----

TEST_F(DispatcherTest, DrainLetsRunningRequestsEndAndRefusesNewOnes) {
  auto stream = StartReady(Spec("ok"), "stall");
  const auto drain = loop().Spawn(dispatcher().Drain(steady_clock::now() + hours(1)));
  loop().Poll();
  EXPECT_FALSE(drain->done());
  EXPECT_EQ(RefusalOf(Submit(Spec("ok"), "answer 1")).code, api::ErrorCode::kUnavailable);
  EXPECT_EQ(loop().Run(dispatcher().Load(Spec("ok"), {})).error().code, api::ErrorCode::kUnavailable);
  EXPECT_EQ(loop().Run(dispatcher().Inspect({.path = "ok"})).error().code, api::ErrorCode::kUnavailable);
  stream.reset();
  loop().Wait(drain);
  ExpectNoChildren();
}

TEST_F(DispatcherTest, DrainEndsWhatRunsAtItsDeadline) {
  auto running = StartReady(Spec("ok"), "stall");
  const auto loading = Submit(Spec("hang-load"), "answer 1");
  loop().Poll();
  Drain(steady_clock::now());
  ExpectNoChildren();
  EXPECT_EQ(RefusalOf(loading).code, api::ErrorCode::kUnavailable);
  EXPECT_EQ(Finish(*running).failed.value().code, api::ErrorCode::kUnavailable);
}

TEST_F(DispatcherTest, ADestroyedDispatcherEndsItsRunnersAndRequests) {
  auto running = StartReady(Spec("ok"), "stall");
  const auto loading = Submit(Spec("hang-load"), "answer 1");
  loop().Poll();
  DestroyDispatcher();
  EXPECT_EQ(RefusalOf(loading).code, api::ErrorCode::kUnavailable);
  EXPECT_EQ(Finish(*running).failed.value().code, api::ErrorCode::kUnavailable);
  loop().RunUntil([] { return !HasChildren(); });
}

TEST_F(DispatcherTest, ADestroyedExecutorLeavesNoRunner) {
  {
    const auto inspecting = loop().Spawn(dispatcher().Inspect({.path = Model("hang-inspect")}));
    const auto loading = Submit(Spec("hang-load"), "answer 1");
    (void)StartReady(Spec("ok"), "stall");
    loop().RunUntil([] { return HasChildren(); });
  }
  DestroyDispatcher();
  loop().Destroy();
  ExpectNoChildren();
}

}  // namespace
}  // namespace quire::scheduler
