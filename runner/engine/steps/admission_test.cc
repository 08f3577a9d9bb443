#include "runner/engine/steps/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runner/engine/shares/place_share.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/steps/prefix_reuse.h"

namespace quire::runner::engine {
namespace {

using Waiting = std::vector<WaitingState>;
using Tokens = std::vector<api::TokenId>;

TEST(NextToAdmit, TakesThemInOrderOfArrival) {
  EXPECT_EQ(NextToAdmit(Waiting{{.arrival = 7}, {.arrival = 3}}, 100, true), 1U);
  EXPECT_EQ(NextToAdmit(Waiting{}, 100, true), std::nullopt);
}

TEST(NextToAdmit, WhoWasServedLeastGoesFirst) {
  EXPECT_EQ(
      NextToAdmit(Waiting{{.virtual_time = 50, .arrival = 1}, {.virtual_time = 2, .arrival = 9}}, 100, true),
      1U);
}

TEST(NextToAdmit, PreemptedOnesComeBackBeforeAnybodyNew) {
  EXPECT_EQ(NextToAdmit(Waiting{{.virtual_time = 0, .arrival = 1},
                                {.virtual_time = 90, .arrival = 8, .preempted = true},
                                {.virtual_time = 99, .arrival = 5, .preempted = true}},
                        100, true),
            2U);
}

TEST(NextToAdmit, PartiesWithoutAPlaceGoFirstAmongEquals) {
  EXPECT_EQ(NextToAdmit(Waiting{{.arrival = 1, .has_place = true}, {.arrival = 2}}, 100, true), 1U);
  EXPECT_EQ(NextToAdmit(Waiting{{.virtual_time = 1, .arrival = 1, .has_place = true},
                                {.virtual_time = 2, .arrival = 2}},
                        100, true),
            0U);
}

TEST(NextToAdmit, FollowersArePassedOver) {
  EXPECT_EQ(NextToAdmit(Waiting{{.arrival = 1, .follows = true}, {.arrival = 2}}, 100, true), 1U);
  EXPECT_EQ(NextToAdmit(Waiting{{.arrival = 1, .follows = true}}, 100, true), std::nullopt);
}

TEST(NextToAdmit, APartyWithAllPlacesThatOneMayHaveIsPassedOver) {
  EXPECT_EQ(
      NextToAdmit(Waiting{{.arrival = 1, .has_place = true, .crowded = true}, {.arrival = 2}}, 100, true),
      1U);
  EXPECT_EQ(PlacesOfOne(32), 30);
  EXPECT_EQ(PlacesOfOne(16), 15);
  EXPECT_EQ(PlacesOfOne(15), 15) << "a small batch is not made smaller";
}

TEST(NextToAdmit, NobodyOvertakesWhoWaitsForMemory) {
  const Waiting waiting{{.arrival = 1, .bytes = 200}, {.arrival = 2, .bytes = 10}};
  EXPECT_EQ(NextToAdmit(waiting, 100, true), std::nullopt);
  EXPECT_EQ(NextToAdmit(waiting, 200, true), 0U);
  EXPECT_EQ(NextToAdmit(waiting, 100, false), 0U);
}

TEST(FindLeader, IsWhoeverWillComputeTheLongestCommonPart) {
  Tokens prompt(100);
  for (int i = 0; i < 100; ++i) prompt[static_cast<size_t>(i)] = i;
  Tokens near(prompt.begin(), prompt.begin() + 60);
  near.push_back(-1);
  Tokens nearer(prompt.begin(), prompt.begin() + 80);
  nearer.push_back(-2);
  const std::vector<RunningPrefix> running = {{api::RequestId{1}, near, 10}, {api::RequestId{2}, nearer, 10}};
  const auto leader = FindLeader(prompt, 0, running);
  ASSERT_TRUE(leader);
  EXPECT_EQ(leader->id, api::RequestId{2});
  EXPECT_EQ(leader->until, 80);
  // Not worth it when as much can be had at once, and not when it is behind the leader already.
  EXPECT_FALSE(FindLeader(prompt, 80 - kLeadMin + 1, running));
  EXPECT_FALSE(FindLeader(prompt, 0, std::vector<RunningPrefix>{{api::RequestId{2}, nearer, 80}}));
}

TEST(FindLeader, TheSamePromptIsSharedButForItsLastToken) {
  const Tokens prompt(50, 1);
  const auto leader = FindLeader(prompt, 0, std::vector<RunningPrefix>{{api::RequestId{1}, prompt, 0}});
  ASSERT_TRUE(leader);
  EXPECT_EQ(leader->until, 49);
}

cache::Layout Hybrid() {
  return {.groups = {{.layers = 2, .kv_heads = 2, .head_dim = 32}},
          .recurrent = {{.conv_tail = 2, .conv_dim = 64}}};
}

TEST(SequenceBytes, CountsPagesWindowsAndTheSlot) {
  cache::Layout layout = Hybrid();
  const size_t page = cache::PageBytes(layout, 0);
  const size_t slot = cache::SlotBytes(layout);
  EXPECT_EQ(SequenceBytes(layout, 1, 1), page + slot);
  EXPECT_EQ(SequenceBytes(layout, 32, 1), page + slot);
  EXPECT_EQ(SequenceBytes(layout, 33, 1), 2 * page + slot);
  layout.groups[0].window = 64;
  layout.recurrent.clear();
  EXPECT_EQ(SequenceBytes(layout, 10'000, 16), 4 * page);
}

TEST(ChooseCacheSize, HoldsAtLeastAShortSequenceAndIsBoundedByWhatIsAvailable) {
  const cache::Layout layout = Hybrid();
  const size_t least = SequenceBytes(layout, 512, 512);
  EXPECT_EQ(ChooseCacheSize(layout, 1 << 20, 1, 1 << 30).bytes, least);
  EXPECT_EQ(ChooseCacheSize(layout, 4096, int64_t{1} << 33, 0).bytes, size_t{1} << 33);
  EXPECT_EQ(ChooseCacheSize(layout, 4096, 0, size_t{8} << 30).bytes, size_t{2} << 30);
  EXPECT_EQ(ChooseCacheSize(layout, 4096, 0, size_t{64} << 30).bytes, kCacheBytesMax);
  EXPECT_EQ(ChooseCacheSize(layout, 4096, 0, 0).bytes, least);
  // A long context gets up to half.
  EXPECT_EQ(ChooseCacheSize(layout, 100 << 20, 0, size_t{8} << 30).bytes, size_t{4} << 30);
}

// The budget is what the scheduler granted: nothing stands beside it.
TEST(ShareCache, CompiledFormatsAreAPartOfTheBudgetAndSoIsADraftModel) {
  const cache::Layout layout = Hybrid();
  for (const size_t budget : {size_t{1} << 20, size_t{256} << 20, size_t{8} << 30}) {
    const CacheShares alone = ShareCache(layout, nullptr, budget);
    EXPECT_EQ(alone.model + alone.constraints, budget);
    EXPECT_EQ(alone.draft, 0U);
    EXPECT_EQ(alone.constraints, std::min(budget / 16, size_t{256} << 20));
    const CacheShares drafted = ShareCache(layout, &layout, budget);
    EXPECT_EQ(drafted.model + drafted.draft + drafted.constraints, budget);
    EXPECT_GT(drafted.draft, 0U);
    EXPECT_LE(drafted.constraints, alone.constraints);
  }
}

TEST(SnapshotOffsets, AreBoundariesDivergenceAndIntervals) {
  using Offsets = std::vector<int32_t>;
  EXPECT_EQ(SnapshotOffsets(Offsets{10, 300, 590}, 0, 0, 600, 256), (Offsets{10, 256, 300, 512, 590}));
  // The reused prefix has snapshots already; the point of divergence is new.
  EXPECT_EQ(SnapshotOffsets(Offsets{10, 300, 590}, 300, 450, 600, 256), (Offsets{450, 512, 590}));
  // Without a message end near the prompt's end, the same prompt returns just before its last token.
  EXPECT_EQ(SnapshotOffsets(Offsets{}, 0, 0, 100, 256), (Offsets{99}));
  EXPECT_EQ(SnapshotOffsets(Offsets{}, 99, 0, 100, 256), (Offsets{}));
}

TEST(SnapshotOffsets, CrowdedBoundariesAreThinnedButForTheLast) {
  std::vector<int32_t> boundaries;
  for (int32_t i = 1; i <= 100; ++i) boundaries.push_back(10 * i);
  const auto offsets = SnapshotOffsets(boundaries, 0, 0, 1004, 1024);
  EXPECT_EQ(offsets, (std::vector<int32_t>{10, 270, 530, 790, 970, 980, 990, 1000}));
}

TEST(SnapshotInterval, GrowsWithTheWeightOfAState) {
  cache::Layout layout = Hybrid();
  EXPECT_EQ(SnapshotInterval(layout), 256);
  layout.recurrent.assign(18, {.delta_heads = 16, .delta_value_dim = 128, .delta_key_dim = 128});
  const int32_t heavy = SnapshotInterval(layout);
  EXPECT_GT(heavy, 256);
  EXPECT_LE(heavy, 8192);
}

}  // namespace
}  // namespace quire::runner::engine
