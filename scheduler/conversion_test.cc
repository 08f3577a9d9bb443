#include "scheduler/conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Awaitable<api::Result<void>> RunToEnd(Dispatcher& dispatcher, std::string from,
                                      std::shared_ptr<const void> kept, std::vector<float>& reported) {
  api::ipc::ConvertModel request;
  request.from = std::move(from);
  auto job = co_await dispatcher.Convert(std::move(request), std::move(kept));
  if (!job) co_return std::unexpected(job.error());
  while (true) {
    const auto fraction = co_await (*job)->Next();
    if (!fraction) co_return std::unexpected(fraction.error());
    if (!*fraction) co_return api::Result<void>();
    reported.push_back(**fraction);
  }
}

class ConversionTest : public DispatcherFixture {
 protected:
  auto Convert(const std::string& mode) {
    return loop().Spawn(RunToEnd(dispatcher(), Model(mode), kept_, reported_));
  }
  std::vector<float> reported_;
  std::shared_ptr<const void> kept_ = std::make_shared<int>(0);
};

TEST_F(ConversionTest, TellsOfProgressAndLeavesNoRunner) {
  EXPECT_TRUE(loop().Wait(Convert("ok")));
  EXPECT_THAT(reported_, ElementsAre(0.5F));
  loop().RunUntil([] { return !HasChildren(); });
  loop().RunUntil([this] { return kept_.use_count() == 1; });
}

TEST_F(ConversionTest, AModelsOwnErrorIsTheResult) {
  const auto result = loop().Wait(Convert("fail-convert"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kBadModel);
  EXPECT_EQ(result.error().message, "not a model");
}

TEST_F(ConversionTest, DeathIsReported) {
  const auto result = loop().Wait(Convert("abort-convert"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kRunnerDied);
  EXPECT_THAT(result.error().message, HasSubstr("killed by signal 6 (SIGABRT)"));
}

TEST_F(ConversionTest, StandingStillEndsIt) {
  limits().convert_patience = std::chrono::milliseconds(100);
  const auto result = loop().Wait(Convert("hang-convert"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, api::ErrorCode::kUnavailable);
  loop().RunUntil([] { return !HasChildren(); });
}

TEST_F(ConversionTest, OneRunsAtATimeAndAClientThatLeavesEndsIt) {
  const auto first = Convert("hang-convert");
  loop().RunUntil([this] { return !reported_.empty(); });
  const auto second = Convert("ok");
  first->Cancel();
  EXPECT_TRUE(loop().Wait(second));
  EXPECT_THAT(reported_, ElementsAre(0.5F, 0.5F));
  loop().RunUntil([] { return !HasChildren(); });
}

}  // namespace
}  // namespace quire::scheduler
