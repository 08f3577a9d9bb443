#include "runner/engine/steps/fetch_timing.h"

#include <gtest/gtest.h>

namespace quire::runner::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMb = 1'000'000;

TEST(FetchTimings, NothingIsFetchedThatTakesMoreThanHalfOfComputingIt) {
  FetchTiming timing;
  timing.SetTokenSeconds(0.01);
  timing.AddFetch(100 * kMb, seconds(1));
  // 1,000 tokens take 10 s to compute: 5 s are 500 MB.
  EXPECT_TRUE(timing.Worthwhile(1000, 500 * kMb));
  EXPECT_FALSE(timing.Worthwhile(1000, 501 * kMb));
  // Slower computing is worth more bytes.
  timing.SetTokenSeconds(0.02);
  EXPECT_TRUE(timing.Worthwhile(1000, 1000 * kMb));
}

TEST(FetchTimings, AFetchIsTriedBeforeBothRatesAreMeasured) {
  FetchTiming timing;
  EXPECT_TRUE(timing.Worthwhile(1, 1'000'000 * kMb));
  timing.SetTokenSeconds(0.01);
  EXPECT_TRUE(timing.Worthwhile(1, 1'000'000 * kMb));
  timing.AddFetch(0, seconds(9));  // nothing came: nothing was measured
  EXPECT_TRUE(timing.Worthwhile(1, 1'000'000 * kMb));
  timing.AddFetch(kMb, seconds(1));
  EXPECT_FALSE(timing.Worthwhile(1, 1'000'000 * kMb));
}

TEST(FetchTimings, ARequestWaitsNoLongerThanComputingTakes) {
  FetchTiming timing;
  EXPECT_EQ(timing.TimeToWait(2000), seconds(2)) << "not measured: 1 ms a token";
  timing.SetTokenSeconds(0.005);
  EXPECT_EQ(timing.TimeToWait(2000), seconds(10));
  EXPECT_EQ(timing.TimeToWait(0), seconds(0));
}

TEST(FetchTimings, TheRateFollowsTheLatestFetches) {
  FetchTiming timing;
  timing.SetTokenSeconds(0.01);
  timing.AddFetch(100 * kMb, seconds(1));
  for (int i = 0; i < 20; ++i) timing.AddFetch(10 * kMb, seconds(1));
  EXPECT_FALSE(timing.Worthwhile(1000, 100 * kMb));
  for (int i = 0; i < 20; ++i) timing.AddFetch(100 * kMb, seconds(1));
  EXPECT_TRUE(timing.Worthwhile(1000, 400 * kMb));
}

TEST(FetchTimings, ATierThatWasSlowOnceIsTriedAgain) {
  FetchTiming timing;
  timing.SetTokenSeconds(0.01);
  timing.AddFetch(kMb, seconds(10));
  int refused = 0;
  while (!timing.Worthwhile(100, 10 * kMb) && refused < 1000) ++refused;
  EXPECT_GT(refused, 10);
  EXPECT_LT(refused, 100);
}

// An hour of requests on a simulated clock, with a tier whose rate changes: the time that is lost to fetches
// which computing would have beaten stays below a tenth.
TEST(FetchTimings, ASlowTierCostsLittle) {
  FetchTiming timing;
  constexpr double kTokenSeconds = 0.004;
  constexpr int64_t kTokens = 2000;
  constexpr uint64_t kBytes = 40 * kMb;
  timing.SetTokenSeconds(kTokenSeconds);
  double clock = 0;
  double lost = 0;
  int fetched = 0;
  while (clock < 3600) {
    const bool slow = static_cast<int>(clock / 600) % 2 == 1;
    const double transfer = static_cast<double>(kBytes) / (slow ? 2e6 : 200e6);
    const double compute = kTokens * kTokenSeconds;
    if (!timing.Worthwhile(kTokens, kBytes)) {
      clock += compute;
      continue;
    }
    // Given up at the deadline, with what came until then.
    const double limit = std::chrono::duration<double>(timing.TimeToWait(kTokens)).count();
    const double waited = std::min(transfer, limit);
    timing.AddFetch(static_cast<uint64_t>(static_cast<double>(kBytes) * waited / transfer),
                    milliseconds(static_cast<int64_t>(waited * 1000)));
    clock += waited;
    if (transfer > limit) {
      lost += waited;
      clock += compute;
    } else {
      ++fetched;
    }
  }
  EXPECT_GT(fetched, 1000);
  EXPECT_LT(lost, 360);
}

}  // namespace
}  // namespace quire::runner::engine
