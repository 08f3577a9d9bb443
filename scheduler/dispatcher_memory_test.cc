// Memory: loads wait for their turn, make room, or are refused, over fake runner processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr KeepAlive kPinned{-1};

// A fake runner needs what its name says, and 234 bytes for caches, 34 at least.
class DispatcherMemoryTest : public DispatcherFixture {
 protected:
  void SetUp() override { limits().memory_bytes = 10000; }
  LoadedModel Find(const std::string& key) {
    for (const LoadedModel& model : dispatcher().Loaded()) {
      if (model.spec.key == key) return model;
    }
    throw std::runtime_error(key + " is not loaded");
  }
};

TEST_F(DispatcherMemoryTest, GrantsTheRunnerMemory) {
  ASSERT_TRUE(Generate(Spec("need-6000"), "answer 1").finished);
  EXPECT_EQ(Find("need-6000").info.cache_bytes, 234);
  EXPECT_EQ(Find("need-6000").memory_bytes, 6234);
  ASSERT_TRUE(Generate(Spec("need-3600"), "answer 1").finished);
  EXPECT_EQ(Find("need-3600").info.cache_bytes, 166) << "what is left";
}

TEST_F(DispatcherMemoryTest, UnloadsTheLeastRecentlyUsedIdleModels) {
  ASSERT_TRUE(Generate(Spec("need-4000", "a"), "answer 1").finished);
  ASSERT_TRUE(Generate(Spec("need-4000", "b"), "answer 1").finished);
  ASSERT_TRUE(Generate(Spec("need-4000", "a"), "answer 1").finished);
  ASSERT_TRUE(Generate(Spec("need-5000", "c"), "answer 1").finished);
  EXPECT_THAT(LoadedKeys(), UnorderedElementsAre("a", "c"));
  EXPECT_THAT(dispatcher().counters().evictions, ElementsAre(std::pair("memory", 1U)));
}

TEST_F(DispatcherMemoryTest, WaitsForABusyModelLongerThanALoadMayTake) {
  limits().load_timeout = milliseconds(3000);
  auto busy = StartReady(Spec("need-8000", "a"), "stall");
  const auto waits = Submit(Spec("need-8000", "b"), "answer 1");
  loop().RunFor(milliseconds(4000));
  // The answer without end keeps b out, not a short one.
  EXPECT_TRUE(Generate(Spec("need-8000", "a"), "answer 1").finished);
  EXPECT_FALSE(waits->done());
  busy.reset();
  auto answer = loop().Wait(waits);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_TRUE(Finish(**answer).finished);
}

TEST_F(DispatcherMemoryTest, RefusesWhatCanNeverFitAndNamesTheNumbers) {
  const api::Error error = RefusalOf(Submit(Spec("need-20000"), "answer 1"));
  EXPECT_EQ(error.code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("20034 bytes"));
  EXPECT_THAT(error.message, HasSubstr("10000 bytes"));
  EXPECT_TRUE(Generate(Spec("ok"), "answer 1").finished);
}

TEST_F(DispatcherMemoryTest, APinnedModelIsNotUnloadedForAnother) {
  ASSERT_TRUE(Generate(Spec("need-8000", "a"), "answer 1", kPinned).finished);
  const api::Error error = RefusalOf(Submit(Spec("need-8000", "b"), "answer 1"));
  EXPECT_THAT(error.message, HasSubstr("pinned models (keep_alive < 0) use 8234"));
  EXPECT_THAT(LoadedKeys(), ElementsAre("a"));
}

TEST_F(DispatcherMemoryTest, ALoadThatWaitsIsGivenUpWithItsClient) {
  auto busy = StartReady(Spec("need-8000", "a"), "stall");
  const auto waits = Submit(Spec("need-8000", "b"), "answer 1");
  loop().Poll();
  waits->Cancel();
  auto other = Submit(Spec("need-8000", "a"), "answer 1");
  EXPECT_TRUE(Finish(*loop().Wait(other).value()).finished);
}

TEST_F(DispatcherMemoryTest, ARunnerThatLoadsWithoutApprovalIsKilled) {
  EXPECT_THAT(RefusalOf(Submit(Spec("unmeasured"), "answer 1")).message, HasSubstr("protocol error"));
}

// ---- pinned models ----

TEST_F(DispatcherMemoryTest, APinnedModelThatDiesIsReloadedWithoutARequest) {
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok"), kPinned)));
  const int first = Find("ok").runner_pid;
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  loop().RunUntil([&] { return LoadedKeys().size() == 1 && Find("ok").runner_pid != first; });
  EXPECT_FALSE(Find("ok").expires_at) << "and stays as long";
  EXPECT_THAT(dispatcher().counters().restarts, ElementsAre(std::pair("killed", 1U)));
  dispatcher().Unload("ok");
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_TRUE(LoadedKeys().empty());
}

TEST_F(DispatcherMemoryTest, ShutdownCancelsTheRestartOfAPinnedModel) {
  ASSERT_TRUE(loop().Run(dispatcher().Load(Spec("ok"), kPinned)));
  ASSERT_EQ(::kill(Find("ok").runner_pid, SIGKILL), 0);
  loop().RunUntil([this] { return LoadedKeys().empty(); });
}  // and the drain leaves no child

}  // namespace
}  // namespace quire::scheduler
