#include "runner/work/work_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace quire::runner {
namespace {

using Reason = WorkStopped::Reason;

// Nothing if the work was not stopped within `units`.
std::optional<WorkStopped> Work(uint64_t units) {
  try {
    for (uint64_t i = 0; i < units; ++i) CountWork();
  } catch (const WorkStopped& stopped) {
    return stopped;
  }
  return std::nullopt;
}

constexpr uint64_t kSomeChecks = 3 * kUnitsPerCheck;
constexpr auto kNoTime = std::chrono::nanoseconds(0);
constexpr auto kMuchTime = std::chrono::hours(1);

TEST(WorkBudget, WithoutOneNothingIsStopped) { EXPECT_FALSE(Work(kSomeChecks)); }

TEST(WorkBudget, SpentTimeStopsTheWork) {
  const std::atomic<bool> canceled = false;
  const WorkBudget budget(kNoTime, canceled);
  const auto stopped = Work(kSomeChecks);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->reason, Reason::kCpuTime);
}

TEST(WorkBudget, TimeThatIsLeftDoesNot) {
  const std::atomic<bool> canceled = false;
  const WorkBudget budget(kMuchTime, canceled);
  EXPECT_FALSE(Work(kSomeChecks));
}

TEST(WorkBudget, AnotherThreadCancels) {
  std::atomic<bool> canceled = false;
  const WorkBudget budget(kMuchTime, canceled);
  std::thread([&] { canceled = true; }).join();
  const auto stopped = Work(kSomeChecks);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->reason, Reason::kCanceled);
}

TEST(WorkBudget, ManyUnitsAtOnceAreChecked) {
  const std::atomic<bool> canceled = false;
  const WorkBudget budget(kNoTime, canceled);
  EXPECT_THROW(CountWork(uint64_t{1} << 40), WorkStopped);
}

TEST(WorkBudget, ExemptWorkCostsNothing) {
  std::atomic<bool> canceled = true;
  const WorkBudget budget(kMuchTime, canceled);
  {
    const WorkBudget::Exempt exempt;
    EXPECT_FALSE(Work(kSomeChecks));
  }
  EXPECT_TRUE(Work(kSomeChecks));
}

TEST(WorkBudget, EachCheckIsSeen) {
  const std::atomic<bool> canceled = false;
  std::atomic<uint64_t> checks = 0;
  {
    const WorkBudget budget(kMuchTime, canceled, &checks);
    Work(kUnitsPerCheck - 100);
    EXPECT_EQ(checks, 0U);
    Work(kSomeChecks);
    EXPECT_GE(checks, 2U);
    const uint64_t before = checks;
    {
      const WorkBudget::Exempt exempt;
      Work(kSomeChecks);
    }
    EXPECT_GT(checks, before);
  }
  const uint64_t at_end = checks;
  Work(kSomeChecks);
  EXPECT_EQ(checks, at_end);
}

TEST(WorkBudget, EndsWithItsScope) {
  std::atomic<bool> canceled = true;
  { const WorkBudget budget(kMuchTime, canceled); }
  EXPECT_FALSE(Work(kSomeChecks));
}

TEST(WorkLimit, StopsAfterTheSameUnitsEachTime) {
  for (int round = 0; round < 3; ++round) {
    Work(static_cast<uint64_t>(round) * 1000);  // before it: does not count
    const WorkLimit limit(10'000);
    EXPECT_FALSE(Work(10'000));
    const auto stopped = Work(1);
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->reason, Reason::kUnits);
  }
  EXPECT_FALSE(Work(kSomeChecks));
}

TEST(WorkLimit, ExemptWorkCountsNothing) {
  const WorkLimit limit(10'000);
  EXPECT_FALSE(Work(6'000));
  {
    const WorkBudget::Exempt exempt;
    EXPECT_FALSE(Work(kSomeChecks));
  }
  EXPECT_FALSE(Work(4'000));
  EXPECT_TRUE(Work(1));
}

TEST(WorkLimit, TheOuterOneGoesOnBehindTheInner) {
  const WorkLimit outer(1000);
  EXPECT_FALSE(Work(600));
  {
    const WorkLimit inner(5000);
    EXPECT_FALSE(Work(5000));
  }
  EXPECT_FALSE(Work(400));
  EXPECT_TRUE(Work(1));
}

TEST(WorkBudget, IsOfOneThread) {
  std::atomic<bool> canceled = true;
  const WorkBudget budget(kMuchTime, canceled);
  std::thread([] { EXPECT_FALSE(Work(kSomeChecks)); }).join();
}

}  // namespace
}  // namespace quire::runner
