#include "scheduler/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using testing::HasSubstr;
using InspectTask = std::shared_ptr<Task<api::Result<api::ipc::Inspected>>>;

class InspectionTest : public DispatcherFixture {
 protected:
  InspectTask Inspect(const std::string& mode, bool verbose = false, const std::string& party = {}) {
    return loop().Spawn(
        dispatcher().Inspect({.path = Model(mode), .verbose = verbose}, fair::PartyNamed(party)));
  }
};

TEST_F(InspectionTest, DescribesAModelAndLeavesNoRunner) {
  const auto plain = loop().Wait(Inspect("ok"));
  const auto verbose = loop().Wait(Inspect("ok", true));
  ASSERT_TRUE(plain);
  ASSERT_TRUE(verbose);
  EXPECT_EQ(plain->model_info_json, R"({"verbose":false})");
  EXPECT_EQ(verbose->model_info_json, R"({"verbose":true})");
  loop().RunUntil([] { return !HasChildren(); });
  EXPECT_TRUE(dispatcher().Loaded().empty());
}

TEST_F(InspectionTest, TheRunnerHasTheDraftModelsFilesToo) {
  const std::string model = Model("ok"), draft = Model("draft");
  const auto alone = loop().Run(dispatcher().Inspect({.path = model}));
  const auto both =
      loop().Run(dispatcher().Inspect({.path = model, .check_load = true, .draft_path = draft}));
  ASSERT_TRUE(both);
  EXPECT_EQ(both->chat_template, alone->chat_template + alone->chat_template);
  const auto absent = loop().Run(dispatcher().Inspect({.path = model, .draft_path = draft + ".none"}));
  EXPECT_EQ(absent.error().code, api::ErrorCode::kNotFound);
}

TEST_F(InspectionTest, AFilesOwnErrorIsTheResult) {
  const auto result = loop().Wait(Inspect("fail-inspect"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kBadModel);
  EXPECT_EQ(result.error().message, "not a model");
}

TEST_F(InspectionTest, DeathIsReported) {
  const auto result = loop().Wait(Inspect("abort-inspect"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(result.error().message, HasSubstr("killed by signal 6 (SIGABRT)"));
}

TEST_F(InspectionTest, Timeout) {
  limits().inspect_timeout = std::chrono::milliseconds(30);
  const auto result = loop().Wait(Inspect("hang-inspect"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kUnavailable);
  loop().RunUntil([] { return !HasChildren(); });
}

TEST_F(InspectionTest, AClientThatLeavesEndsIt) {
  const auto task = Inspect("hang-inspect");
  loop().RunUntil([] { return HasChildren(); });
  task->Cancel();
  EXPECT_EQ(loop().Wait(task).error().code, api::ErrorCode::kCancelled);
  loop().RunUntil([] { return !HasChildren(); });
}

TEST_F(InspectionTest, MoreThanMayRunWaitTheirTurn) {
  std::vector<InspectTask> hanging;
  for (const std::string party : {"bob", "bob", "carol", "carol"})
    hanging.push_back(Inspect("hang-inspect", false, party));
  const auto leaver = Inspect("ok");
  const auto patient = Inspect("ok");
  loop().RunUntil([] { return HasChildren(); });
  EXPECT_FALSE(patient->done());
  leaver->Cancel();
  EXPECT_EQ(loop().Wait(leaver).error().code, api::ErrorCode::kCancelled);
  hanging[2]->Cancel();
  EXPECT_TRUE(loop().Wait(patient));
}

TEST_F(InspectionTest, ManyOfOnePartyHoldUpNoOther) {
  std::vector<InspectTask> hanging;
  for (int i = 0; i < 20; ++i) hanging.push_back(Inspect("hang-inspect", false, "bob"));
  EXPECT_TRUE(loop().Wait(Inspect("ok", false, "alice")));
  for (const InspectTask& task : hanging) EXPECT_FALSE(task->done());
}

TEST_F(InspectionTest, RefusesAtOnceWhenTooManyWait) {
  limits().queue_max = 1;
  std::vector<InspectTask> hanging;
  for (int i = 0; i < 3; ++i) hanging.push_back(Inspect("hang-inspect"));
  loop().Poll();
  EXPECT_EQ(loop().Wait(Inspect("ok")).error().code, api::ErrorCode::kOverloaded);
}

}  // namespace
}  // namespace quire::scheduler
