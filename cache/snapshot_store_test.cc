#include "cache/snapshot_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

Layout Causal() { return {.page_tokens = 4, .groups = {FullGroup()}}; }
Layout Hybrid() {
  return {.page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {DeltaLayer()}};
}
Capacity Room(const Layout& layout) {
  return {.pages = std::vector<int32_t>(layout.groups.size(), 256), .slots = 64};
}

TokenList Tokens(size_t count, TokenId first = 0) {
  TokenList tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TokenList Join(TokenList head, const TokenList& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// A store with the requests that go through it.
class StoreRig {
 public:
  explicit StoreRig(const Layout& layout, StoreOptions options = {.budget_bytes = SIZE_MAX})
      : StoreRig(layout, Room(layout), options) {}
  StoreRig(const Layout& layout, Capacity capacity, StoreOptions options)
      : rig(layout, std::move(capacity)), store(rig.cache(), options), budget(options.budget_bytes) {}

  // Computes `tokens` from what the store has, capturing at `captures` and at the end.
  void Run(const TokenList& tokens, std::vector<Position> captures = {}, std::string_view key = "") {
    const size_t i = rig.New();
    Restored hit = store.Restore(key, tokens, rig.sequence(i));
    rig.SetTokens(i, TokenList(tokens.begin(), tokens.begin() + hit.restored));
    captures.push_back(static_cast<Position>(tokens.size()));
    for (const Position at : captures) {
      if (at > hit.restored) {
        EXPECT_TRUE(rig.cache().ScheduleCapture(rig.sequence(i), at).has_value());
      }
    }
    rig.AppendTokens(i, TokenList(tokens.begin() + hit.restored, tokens.end()));
    for (Snapshot& snapshot : rig.cache().TakeCaptures(rig.sequence(i))) {
      (void)store.Insert(key, tokens, std::move(snapshot));
      Check();
    }
    rig.Drop(i);
    hit = Restored();
    Check();
  }

  Result<Lease> Insert(const TokenList& tokens, bool user_point = false, std::string_view key = "") {
    store.AdvanceClock();
    return InsertAtOnce(tokens, user_point, key);
  }

  Result<Lease> InsertAtOnce(const TokenList& tokens, bool user_point = false, std::string_view key = "") {
    const size_t i = rig.New();
    rig.AppendTokens(i, tokens);
    auto lease =
        store.Insert(key, tokens, std::move(*rig.cache().CaptureSnapshot(rig.sequence(i))), user_point);
    rig.Drop(i);
    Check();
    return lease;
  }

  // The offset that a request for `tokens` would restore; checks the contents too.
  Position Restorable(const TokenList& tokens, std::string_view key = "") {
    const size_t i = rig.New();
    const Restored hit = store.Restore(key, tokens, rig.sequence(i));
    rig.SetTokens(i, TokenList(tokens.begin(), tokens.begin() + hit.restored));
    rig.CheckAll();
    rig.Drop(i);
    last = {hit.matched, hit.restored, hit.reason};
    Check();
    return hit.restored;
  }

  void Check() {
    const auto ok = store.CheckInvariants();
    EXPECT_TRUE(ok.has_value()) << ok.error();
    const auto cache_ok = rig.cache().CheckInvariants();
    EXPECT_TRUE(cache_ok.has_value()) << cache_ok.error();
    EXPECT_LE(store.stats().bytes_peak, budget);
  }

  Rig rig;
  SnapshotStore store;
  size_t budget;  // the largest ever
  Probed last;
};

TEST(Store, ACausalPrefixIsRestoredAtAnyTokenButNeverWhole) {
  StoreRig rig(Causal());
  ASSERT_TRUE(rig.Insert(Tokens(21)).has_value());
  EXPECT_EQ(rig.Restorable(Tokens(21)), 20);
  EXPECT_EQ(rig.last.reason, MissReason::kNone);
  EXPECT_EQ(rig.Restorable(Join(Tokens(13), {99, 98})), 13);
  EXPECT_EQ(rig.last.reason, MissReason::kDiverged);
  EXPECT_EQ(rig.last.matched, 13);
  EXPECT_EQ(rig.Restorable(Tokens(1)), 0);
}

TEST(Store, AHybridPrefixIsRestoredAtTheDeepestCapture) {
  StoreRig rig(Hybrid());
  rig.Run(Tokens(40), {9, 17, 30});
  EXPECT_EQ(rig.Restorable(Tokens(41)), 40);
  EXPECT_EQ(rig.Restorable(Tokens(40)), 30);
  EXPECT_EQ(rig.last.reason, MissReason::kLayout);
  EXPECT_EQ(rig.Restorable(Join(Tokens(29), {7})), 17);
  EXPECT_EQ(rig.last.matched, 29);
  EXPECT_EQ(rig.Restorable(Tokens(8)), 0);
  EXPECT_EQ(rig.last.reason, MissReason::kLayout);
}

TEST(Store, ALookAheadTreeMatchesOneTokenLess) {
  StoreRig rig(Causal(), {.budget_bytes = SIZE_MAX, .lookahead = true});
  const size_t i = rig.rig.New();
  rig.rig.AppendTokens(i, Tokens(20));
  auto short_of_one =
      rig.store.Insert("", Tokens(20), std::move(*rig.rig.cache().CaptureSnapshot(rig.rig.sequence(i))));
  EXPECT_EQ(short_of_one.error().code, ErrorCode::kInvalid);
  ASSERT_TRUE(
      rig.store.Insert("", Tokens(21), std::move(*rig.rig.cache().CaptureSnapshot(rig.rig.sequence(i))))
          .has_value());
  EXPECT_EQ(rig.Restorable(Tokens(30)), 20);
  EXPECT_EQ(rig.Restorable(Join(Tokens(20), {5, 6})), 19);
  EXPECT_EQ(rig.Restorable(Join(Tokens(12), {5, 6})), 11);
}

TEST(Store, KeysNeverShareAPrefix) {
  StoreRig rig(Causal());
  ASSERT_TRUE(rig.Insert(Tokens(40), false, "alice").has_value());
  EXPECT_EQ(rig.Restorable(Tokens(40), "bob"), 0);
  EXPECT_EQ(rig.last.matched, 0);
  EXPECT_EQ(rig.last.reason, MissReason::kSalt);
  EXPECT_EQ(rig.Restorable(Tokens(40), "alice"), 39);
  EXPECT_EQ(rig.store.stats().trees, 1u);
}

TEST(Store, EqualPrefixesAreHeldOnceHoweverTheyWereComputed) {
  StoreRig rig(Causal());
  // Two sequences compute the same 22 tokens each for itself, then part.
  const TokenList first = Join(Tokens(22), {100, 101, 102});
  const TokenList second = Join(Tokens(22), {200, 201});
  ASSERT_TRUE(rig.Insert(first).has_value());
  ASSERT_TRUE(rig.Insert(second).has_value());
  // 7 pages for the first; of the second only the page in which they part.
  EXPECT_EQ(rig.store.stats().bytes, (7 + 1) * PageBytes(Causal(), 0));
  EXPECT_EQ(rig.store.stats().shared_bytes, PageBytes(Causal(), 0));
  EXPECT_EQ(rig.rig.cache().stats().pages_used[0], 8);
  EXPECT_EQ(rig.Restorable(Join(first, {1})), 25);
  EXPECT_EQ(rig.Restorable(Join(second, {1})), 24);
}

TEST(Store, BytesAreCountedByLayerKind) {
  StoreRig rig(Hybrid());
  ASSERT_TRUE(rig.Insert(Tokens(21)).has_value());
  const StoreStats stats = rig.store.stats();
  EXPECT_EQ(stats.full_bytes, 6 * PageBytes(Hybrid(), 0));
  EXPECT_EQ(stats.window_bytes, 2 * PageBytes(Hybrid(), 1));
  EXPECT_EQ(stats.slot_bytes, SlotBytes(Hybrid()));
  EXPECT_EQ(stats.bytes, stats.full_bytes + stats.window_bytes + stats.slot_bytes);
}

TEST(Store, RoomIsMadeBeforeAnythingIsAdded) {
  const size_t page = PageBytes(Causal(), 0);
  StoreRig rig(Causal(), {.budget_bytes = 10 * page});
  for (TokenId i = 0; i < 20; ++i) ASSERT_TRUE(rig.Insert(Tokens(16, i * 1000)).has_value());
  EXPECT_EQ(rig.store.stats().bytes, 8 * page);
  EXPECT_LE(rig.store.stats().bytes_peak, 10 * page);
  EXPECT_EQ(rig.store.stats().evictions, 18u);
  EXPECT_EQ(rig.Restorable(Tokens(16, 19000)), 15);
  EXPECT_EQ(rig.Restorable(Tokens(16, 0)), 0);
  EXPECT_EQ(rig.last.reason, MissReason::kEvicted);
  const auto refused = rig.Insert(Tokens(48, 77));
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfPages);
  EXPECT_NE(refused.error().message.find("budget"), std::string::npos);
  // A snapshot that can never fit evicts nothing.
  EXPECT_EQ(rig.store.stats().evictions, 18u);
}

TEST(Store, EvictsByLastUseFirst) {
  const size_t page = PageBytes(Causal(), 0);
  StoreRig rig(Causal(), {.budget_bytes = 6 * page});
  ASSERT_TRUE(rig.Insert(Tokens(8, 1000)).has_value());
  ASSERT_TRUE(rig.Insert(Tokens(8, 2000)).has_value());
  ASSERT_TRUE(rig.Insert(Tokens(8, 3000)).has_value());
  EXPECT_EQ(rig.Restorable(Tokens(8, 1000)), 7);
  ASSERT_TRUE(rig.Insert(Tokens(8, 4000)).has_value());
  EXPECT_EQ(rig.store.Probe("", Tokens(8, 2000)).restorable, 0);
  EXPECT_EQ(rig.store.Probe("", Tokens(8, 1000)).restorable, 7);
}

// Prompts of 24 and 57 tokens. The second has a restore point one token before its end, where its window
// weighs more than all of the first.
class CostOfLoss : public testing::Test {
 protected:
  CostOfLoss() {
    EXPECT_TRUE(rig_.Insert(Tokens(24, 1000)).has_value());
    rig_.store.AdvanceClock();
    rig_.Run(Tokens(57), {56});
    EXPECT_GT(BytesTo(57), BytesTo(24));
  }
  size_t BytesTo(Position to) const {
    size_t bytes = 0;
    rig_.store.ForEachNode([&](auto, const auto&, const Snapshot& snapshot) {
      if (snapshot.to() == to) bytes = snapshot.bytes();
    });
    return bytes;
  }
  void EvictOne() {
    rig_.store.set_budget(rig_.store.stats().bytes - 1);
    rig_.Check();
    EXPECT_EQ(rig_.store.stats().evictions + rig_.store.stats().merges, 1u);
  }

  StoreRig rig_{
      Layout{.page_tokens = 4, .groups = {FullGroup(), WindowGroup(64)}, .recurrent = {DeltaLayer()}}};
};

TEST_F(CostOfLoss, AHeavySnapshotThatIsCheapToRecomputeGoesBeforeALightExpensiveOne) {
  EvictOne();
  EXPECT_EQ(rig_.store.Probe("", Tokens(58)).restorable, 56);
  EXPECT_EQ(rig_.store.Probe("", Tokens(25, 1000)).restorable, 24);
}

TEST_F(CostOfLoss, ALongTimeWithoutUseOutweighsTheTokens) {
  for (int i = 0; i < 100; ++i) rig_.store.AdvanceClock();
  EXPECT_EQ(rig_.Restorable(Tokens(58)), 57);
  EvictOne();
  EXPECT_EQ(rig_.store.Probe("", Tokens(58)).restorable, 57);
  EXPECT_EQ(rig_.store.Probe("", Tokens(25, 1000)).restorable, 0);
}

// Behind the candidates nothing is weighed, however cheap it is.
TEST(Store, OnlyTheOldestAreWeighed) {
  StoreRig rig(Causal());
  for (TokenId i = 0; i < SnapshotStore::kEvictionCandidates; ++i) {
    ASSERT_TRUE(rig.InsertAtOnce(Tokens(8, i * 1000)).has_value());
  }
  // A single token has a page of its own.
  ASSERT_TRUE(rig.Insert(Tokens(1, 77000)).has_value());
  const auto evict_one = [&] { rig.store.set_budget(rig.store.stats().bytes - 1); };
  evict_one();
  EXPECT_EQ(rig.store.Probe("", Tokens(2, 77000)).restorable, 1);
  EXPECT_EQ(rig.store.Probe("", Tokens(8, 0)).restorable, 0);
  evict_one();
  EXPECT_EQ(rig.store.Probe("", Tokens(2, 77000)).restorable, 0);
  EXPECT_EQ(rig.store.Probe("", Tokens(8, 1000)).restorable, 7);
  rig.Check();
}

TEST(Store, EvictsTheDeeperOfEquallyOldOnesThenTheLarger) {
  StoreRig rig(Causal());
  // Three leaves of one moment, ends at 20, 28 and 28; of the last two the one with the longer edge is
  // larger.
  const TokenList shallow = Join(Tokens(12), Tokens(8, 500));
  const TokenList deep = Join(Tokens(20), Tokens(8, 600));
  const TokenList deep_and_large = Join(Tokens(8), Tokens(20, 700));
  for (const TokenList& tokens : {shallow, deep, deep_and_large}) {
    ASSERT_TRUE(rig.InsertAtOnce(tokens).has_value());
  }
  const auto evict_one = [&] { rig.store.set_budget(rig.store.stats().bytes - 1); };
  evict_one();
  EXPECT_EQ(rig.store.Probe("", Join(deep_and_large, {1})).restorable, 8);
  EXPECT_EQ(rig.store.Probe("", Join(deep, {1})).restorable, 28);
  evict_one();
  EXPECT_EQ(rig.store.Probe("", Join(deep, {1})).reason, MissReason::kEvicted);
  EXPECT_EQ(rig.store.Probe("", Join(shallow, {1})).restorable, 20);
  rig.Check();
}

TEST(Store, BranchPointsStayWhileTheyBranchAndMergeAfterwards) {
  StoreRig rig(Hybrid());
  rig.Run(Join(Tokens(20), Tokens(8, 500)), {20});
  rig.Run(Join(Tokens(20), Tokens(8, 600)));
  EXPECT_EQ(rig.store.stats().nodes, 3u);
  const size_t slot = SlotBytes(Hybrid());
  // Least recently used is the branch point's state, but it branches: its older leaf goes instead.
  rig.store.set_budget(rig.store.stats().bytes - 1);
  rig.Check();
  EXPECT_EQ(rig.store.stats().evictions, 1u);
  EXPECT_EQ(rig.store.Probe("", Join(Tokens(20), Tokens(9, 600))).restorable, 28);
  EXPECT_EQ(rig.store.stats().nodes, 2u);
  // Now it has one child, which was used time and again since, and merges into it; the child supersedes it.
  for (int use = 0; use < 6; ++use) EXPECT_EQ(rig.Restorable(Join(Tokens(20), Tokens(9, 600))), 28);
  rig.store.set_budget(rig.store.stats().bytes - slot);
  rig.Check();
  EXPECT_EQ(rig.store.stats().merges, 1u);
  EXPECT_EQ(rig.store.stats().nodes, 1u);
  EXPECT_EQ(rig.Restorable(Join(Tokens(20), Tokens(9, 600))), 28);
  EXPECT_EQ(rig.Restorable(Join(Tokens(20), {1, 2})), 0);
  EXPECT_EQ(rig.last.reason, MissReason::kEvicted);
}

TEST(Store, UserRestorePointsResistMerging) {
  StoreRig rig(Hybrid());
  const size_t i = rig.rig.New();
  rig.rig.AppendTokens(i, Tokens(20));
  ASSERT_TRUE(
      rig.store.Insert("", Tokens(20), std::move(*rig.rig.cache().CaptureSnapshot(rig.rig.sequence(i))), true)
          .has_value());
  rig.rig.AppendTokens(i, Tokens(20, 20));
  ASSERT_TRUE(
      rig.store.Insert("", Tokens(40), std::move(*rig.rig.cache().CaptureSnapshot(rig.rig.sequence(i))))
          .has_value());
  rig.rig.Drop(i);
  rig.store.set_budget(rig.store.stats().bytes - 1);
  rig.Check();
  EXPECT_EQ(rig.store.stats().merges, 0u);
  EXPECT_EQ(rig.store.stats().evictions, 1u);
  EXPECT_EQ(rig.Restorable(Tokens(40)), 20);
}

TEST(Store, LeasesKeepWhatARunningSequenceStandsOn) {
  StoreRig rig(Hybrid());
  rig.Run(Tokens(40), {12, 30});
  const size_t i = rig.rig.New();
  Restored hit = rig.store.Restore("", Join(Tokens(30), {1, 2}), rig.rig.sequence(i));
  rig.rig.SetTokens(i, Tokens(30));
  EXPECT_EQ(hit.restored, 30);
  EXPECT_EQ(rig.store.stats().leases, 1u);
  rig.store.set_budget(0);
  rig.Check();
  // The leaf beyond and the restore point before are gone, the pages and the state at 30 are not.
  EXPECT_EQ(rig.store.stats().nodes, 1u);
  EXPECT_EQ(rig.store.Probe("", Tokens(41)).restorable, 30);
  EXPECT_FALSE(rig.Insert(Tokens(8, 900)).has_value());
  // A lease follows its offset when the edge is split below it.
  rig.store.set_budget(SIZE_MAX);
  rig.Run(Join(Tokens(20), {5, 6, 7}));
  rig.Check();
  rig.store.Clear();
  EXPECT_EQ(rig.store.Probe("", Tokens(41)).restorable, 30);
  hit = Restored();
  rig.Check();
  rig.store.Clear();
  EXPECT_EQ(rig.store.stats().bytes, 0u);
  rig.rig.CheckAll();
  rig.rig.Append({{i, 3}});
}

TEST(Store, ALeaseIsOnTheUpperOfTwoNodesThatReachItsOffset) {
  StoreRig rig(Causal());
  for (const size_t tokens : {20, 21}) ASSERT_TRUE(rig.Insert(Tokens(tokens)).has_value());
  EXPECT_EQ(rig.store.stats().nodes, 2u);
  const size_t i = rig.rig.New();
  const Restored hit = rig.store.Restore("", Tokens(21), rig.rig.sequence(i));
  rig.rig.SetTokens(i, Tokens(20));
  EXPECT_EQ(hit.restored, 20);
  rig.store.set_budget(0);
  rig.Check();
  // The node of the last token is evicted: the sequence does not stand on it.
  EXPECT_EQ(rig.store.stats().nodes, 1u);
  EXPECT_EQ(rig.store.Probe("", Tokens(30)).matched, 20);
}

TEST(Store, ALeaseMovesToTheUpperHalfOfASplit) {
  StoreRig rig(Causal());
  ASSERT_TRUE(rig.Insert(Tokens(40)).has_value());
  const size_t i = rig.rig.New();
  Restored hit = rig.store.Restore("", Join(Tokens(10), {77}), rig.rig.sequence(i));
  rig.rig.SetTokens(i, Tokens(10));
  ASSERT_TRUE(rig.Insert(Join(Tokens(20), {88, 89})).has_value());
  rig.store.Clear();
  rig.Check();
  EXPECT_EQ(rig.store.Probe("", Tokens(40)).matched, 20);
  // Also where the split is at exactly its offset.
  ASSERT_TRUE(rig.Insert(Join(Tokens(10), {99, 98})).has_value());
  rig.store.Clear();
  rig.Check();
  EXPECT_EQ(rig.store.Probe("", Tokens(40)).matched, 10);
}

TEST(Store, GivesMemoryBackWhenAStepNeedsIt) {
  const Layout layout = Hybrid();
  StoreRig rig(layout, {.pages = {16, 16}, .slots = 3}, {.budget_bytes = SIZE_MAX});
  ASSERT_TRUE(rig.Insert(Tokens(24, 1000)).has_value());
  ASSERT_TRUE(rig.Insert(Tokens(24, 2000)).has_value());
  EXPECT_EQ(rig.store.stats().nodes, 2u);
  const size_t i = rig.rig.New();
  rig.rig.AppendTokens(i, Tokens(30, 3000));
  rig.Check();
  EXPECT_EQ(rig.store.stats().evictions, 1u);
  EXPECT_EQ(rig.store.Probe("", Tokens(25, 2000)).restorable, 24);
  // Slots are short: only nodes that hold one go.
  const size_t j = rig.rig.New();
  const size_t k = rig.rig.New();
  rig.rig.AppendTokens(j, {1});
  rig.rig.AppendTokens(k, {1});
  EXPECT_EQ(rig.store.stats().nodes, 0u);
  rig.Check();
  EXPECT_EQ(rig.rig.AppendFails({{i, 2000}}).code, ErrorCode::kOutOfPages);
}

// Pages are short and slots are not: a restore point inside a path, however old, holds none that its child
// does not.
TEST(Store, SparesRestorePointsThatWouldFreeNothing) {
  const Layout layout{.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {DeltaLayer()}};
  StoreRig rig(layout, {.pages = {16}, .slots = 16}, {.budget_bytes = SIZE_MAX});
  rig.Run(Tokens(24, 1000), {8, 16});
  ASSERT_TRUE(rig.Insert(Tokens(24, 2000)).has_value());
  EXPECT_EQ(rig.Restorable(Tokens(25, 1000)), 24);
  const size_t i = rig.rig.New();
  rig.rig.AppendTokens(i, Tokens(30, 3000));
  rig.Check();
  EXPECT_EQ(rig.store.stats().merges, 0u);
  EXPECT_EQ(rig.store.stats().evictions, 1u);
  EXPECT_EQ(rig.store.Probe("", Tokens(9, 1000)).restorable, 8);
  EXPECT_EQ(rig.store.Probe("", Tokens(25, 2000)).restorable, 0);
}

// Two snapshots that meet inside a page and were computed separately each have that page.
TEST(Store, GivesUpThePageInWhichARestorePointMeetsItsChild) {
  const Layout layout{.page_tokens = 4, .groups = {FullGroup()}, .recurrent = {DeltaLayer()}};
  StoreRig rig(layout, {.pages = {9}, .slots = 16}, {.budget_bytes = SIZE_MAX});
  ASSERT_TRUE(rig.Insert(Tokens(10)).has_value());
  const auto stood_on = rig.Insert(Tokens(24));
  EXPECT_EQ(rig.rig.cache().stats().pages_used[0], 3 + 4);
  const size_t i = rig.rig.New();
  rig.rig.AppendTokens(i, Tokens(12, 3000));
  rig.Check();
  EXPECT_EQ(rig.store.stats().merges, 1u);
  EXPECT_EQ(rig.store.Probe("", Tokens(25)).restorable, 24);
}

TEST(Store, CountsHitsAndMissesByReason) {
  StoreRig rig(Hybrid());
  rig.Restorable(Tokens(20));
  rig.Run(Tokens(40), {20});
  rig.Restorable(Tokens(41));
  rig.Restorable(Tokens(30));
  rig.Restorable(Tokens(20));
  rig.Restorable(Tokens(20), "other");
  const StoreStats stats = rig.store.stats();
  EXPECT_EQ(stats.lookups, 6u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses[static_cast<size_t>(MissReason::kCold)], 2u);
  EXPECT_EQ(stats.misses[static_cast<size_t>(MissReason::kLayout)], 1u);
  EXPECT_EQ(stats.misses[static_cast<size_t>(MissReason::kSalt)], 1u);
  EXPECT_EQ(stats.partial[static_cast<size_t>(MissReason::kLayout)], 1u);
  EXPECT_EQ(stats.tokens_restored, 60u);
  EXPECT_EQ(Name(MissReason::kDiverged), "diverged");
}

TEST(Store, RefusesWhatItCannotGiveBackExactly) {
  StoreRig rig(Causal());
  const size_t i = rig.rig.New();
  rig.rig.Append({{i, 20}});
  const TokenList tokens = rig.rig.tokens(i);
  EXPECT_EQ(rig.store.Insert("", tokens, Snapshot()).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(rig.store.Insert("", Tokens(19), std::move(*rig.rig.cache().CaptureSnapshot(rig.rig.sequence(i))))
                .error()
                .code,
            ErrorCode::kInvalid);
  rig.rig.RemoveRange(i, 3, 6);
  EXPECT_EQ(rig.store.Insert("", tokens, std::move(*rig.rig.cache().CaptureSnapshot(rig.rig.sequence(i))))
                .error()
                .code,
            ErrorCode::kUnsupported);
  EXPECT_EQ(rig.store.stats().trees, 0u);
}

}  // namespace
}  // namespace quire::cache
