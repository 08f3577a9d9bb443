// What runners say of their engines and caches, with fake runner processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;

class DispatcherViewsTest : public DispatcherFixture {
 protected:
  api::Result<CacheView> Cache(const std::string& key, api::ipc::InspectCache question, int pid = 0) {
    question.nodes_max = 10;
    return loop().Run(dispatcher().InspectCache(key, std::move(question), pid));
  }
};

TEST_F(DispatcherViewsTest, ACacheIsAskedForOneIsolationKey) {
  EXPECT_EQ(Cache("ok", {}).error().code, api::ErrorCode::kNotFound);
  (void)Generate(Spec("ok"), "answer 1");
  const auto own = Cache("ok", {.isolation = "1:a"});
  ASSERT_TRUE(own) << own.error().message;
  ASSERT_EQ(own->cache.nodes.size(), 1);
  EXPECT_EQ(own->cache.nodes[0].begin, "1:a");
  EXPECT_EQ(own->runner_pid, dispatcher().Loaded().at(0).runner_pid);
  EXPECT_EQ(Cache("ok", {.others = true})->cache.nodes.size(), 2);
}

// A version is one runner's: of another it says nothing.
TEST_F(DispatcherViewsTest, AKnownVersionHoldsForItsRunnerOnly) {
  (void)Generate(Spec("ok"), "answer 1");
  const auto first = Cache("ok", {});
  EXPECT_FALSE(first->cache.unchanged);
  const api::ipc::InspectCache known{.known_version = first->cache.version};
  EXPECT_TRUE(Cache("ok", known, first->runner_pid)->cache.unchanged);
  EXPECT_FALSE(Cache("ok", known, first->runner_pid + 1)->cache.unchanged);
}

TEST_F(DispatcherViewsTest, ARunnerThatShowsAnothersTextIsReplaced) {
  (void)Generate(Spec("other-text"), "answer 1");
  ASSERT_TRUE(Cache("other-text", {.others = false}).error().message.find("secret") == std::string::npos);
  EXPECT_FALSE(Cache("other-text", {.others = true}));
  EXPECT_EQ(Generate(Spec("other-text"), "answer 2").text, "t0 t1 ");
}

TEST_F(DispatcherViewsTest, AnAnswerThatNobodyAskedForEndsTheRunner) {
  (void)Generate(Spec("unasked-cache"), "answer 1");
  (void)Cache("unasked-cache", {});
  loop().RunUntil([this] { return dispatcher().counters().restarts.contains("crashed"); });
  EXPECT_EQ(Generate(Spec("unasked-cache"), "answer 1").text, "t0 ");
}

TEST_F(DispatcherViewsTest, AQuestionEndsWithItsRunner) {
  (void)Generate(Spec("dies-asked"), "answer 1");
  const auto answer = Cache("dies-asked", {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, api::ErrorCode::kUnavailable);
}

TEST_F(DispatcherViewsTest, EnginesTellWhoseTheirSequencesAre) {
  EXPECT_TRUE(dispatcher().Engines().empty());
  api::Request request = Raw("stall");
  request.client = {.party = fair::PartyNamed("t", 3), .exchange = "exchange-1"};
  auto stream = loop().Run(dispatcher().Submit(Spec("ok"), std::move(request), {}));
  ASSERT_TRUE(stream);
  ASSERT_TRUE(std::holds_alternative<api::PromptReady>(Next(**stream)));
  EXPECT_TRUE(dispatcher().Engines().empty());  // nobody asked
  loop().Run(dispatcher().InspectEngines(steady_clock::time_point::max()));
  const auto engines = dispatcher().Engines();
  ASSERT_EQ(engines.size(), 1);
  EXPECT_EQ(engines[0].engine.steps, 5);
  EXPECT_EQ(engines[0].spec.key, "ok");
  ASSERT_EQ(engines[0].owners.size(), 1);
  EXPECT_EQ(engines[0].owners[0].exchange, "exchange-1");
  EXPECT_EQ(engines[0].owners[0].weight, 3);
}

}  // namespace
}  // namespace quire::scheduler
