#include "cache/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

Layout HybridLayout() {
  return {
      .page_tokens = 4, .groups = {FullGroup(), WindowGroup(6)}, .recurrent = {ConvLayer(), DeltaLayer()}};
}

Layout CausalLayout() { return {.page_tokens = 4, .groups = {FullGroup()}}; }

const Capacity kRoom{.pages = {64, 64}, .slots = 16};
const Capacity kCausalRoom{.pages = {64}};

Snapshot CaptureSnapshot(Rig& rig, size_t i, Position from = 0) {
  auto snapshot = rig.cache().CaptureSnapshot(rig.sequence(i), from);
  EXPECT_TRUE(snapshot.has_value());
  return std::move(*snapshot);
}

TEST(Snapshots, HoldReferencesNotCopiesAndSizeIsExact) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  rig.Append({{a, 21}});
  const CacheStats before = rig.cache().stats();
  const Snapshot snapshot = CaptureSnapshot(rig, a, 9);
  EXPECT_EQ(rig.cache().stats().used_bytes, before.used_bytes);
  EXPECT_EQ(rig.cache().stats().bytes_copied, before.bytes_copied);
  EXPECT_EQ(snapshot.from(), 9);
  EXPECT_EQ(snapshot.to(), 21);
  // Pages 2..5 of the full group, the window's pages of [16, 21), the slot.
  const Layout layout = HybridLayout();
  EXPECT_EQ(snapshot.bytes(), 4 * PageBytes(layout, 0) + 2 * PageBytes(layout, 1) + SlotBytes(layout));
}

TEST(Snapshots, RestoreOnlyAtExactlyTheirOffsetWithRecurrentState) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  rig.Append({{a, 13}});
  const Snapshot snapshot = CaptureSnapshot(rig, a);
  const TokenList tokens = rig.tokens(a);
  rig.Append({{a, 20}});
  const size_t b = rig.Restore(snapshot, tokens);
  EXPECT_EQ(rig.sequence(b).offset(), 13);
  rig.Append({{b, 3}, {a, 2}});
  const auto refused = rig.cache().Restore(rig.sequence(b), snapshot, 12);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(rig.sequence(b).offset(), 16);
  rig.CheckAll();
}

TEST(Snapshots, CausalOnesRestoreAtAnyOffset) {
  Rig rig(CausalLayout(), kCausalRoom);
  const size_t a = rig.New();
  rig.Append({{a, 13}});
  const Snapshot snapshot = CaptureSnapshot(rig, a);
  for (Position at = 1; at <= 13; ++at) {
    const size_t b = rig.Restore(snapshot, rig.tokens(a), at);
    EXPECT_EQ(rig.sequence(b).offset(), at);
    rig.Append({{b, 2}});
    rig.Drop(b);
  }
}

TEST(Snapshots, RestoreLandsOnTheDeepestOffsetAllLayersReachOrRefuses) {
  Rig rig({.page_tokens = 4, .groups = {FullGroup(), WindowGroup(10), WindowGroup(9)}},
          {.pages = {64, 64, 64}});
  const size_t a = rig.New();
  rig.Append({{a, 8}});
  const Snapshot early = CaptureSnapshot(rig, a);
  const TokenList tokens = rig.tokens(a);
  rig.Append({{a, 15}});
  const Snapshot late = CaptureSnapshot(rig, a);
  // At 8 no window has slid.
  EXPECT_EQ(early.DeepestRestorable(100), 8);
  EXPECT_EQ(early.DeepestRestorable(7), 7);
  EXPECT_EQ(early.DeepestRestorable(4), 4);
  const size_t b = rig.Restore(early, tokens, 6);
  EXPECT_EQ(rig.sequence(b).offset(), 6);
  rig.Append({{b, 9}});
  // At 23 the windows have slid beyond the pages before 12, and a token at 20 sees 11.
  EXPECT_EQ(late.DeepestRestorable(23), 23);
  EXPECT_EQ(late.DeepestRestorable(21), 21);
  EXPECT_EQ(late.DeepestRestorable(20), 0);
  EXPECT_FALSE(rig.cache().Restore(rig.sequence(b), late, 20).has_value());
  EXPECT_EQ(rig.sequence(b).offset(), 15);
  rig.CheckAll();
}

TEST(Snapshots, RestoreGivesAForkWithoutStateItsStateBack) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  rig.Append({{a, 9}});
  const Snapshot snapshot = CaptureSnapshot(rig, a);
  rig.Append({{a, 9}});
  const size_t b = rig.Fork(a, 9);
  EXPECT_FALSE(rig.sequence(b).ready());
  ASSERT_TRUE(rig.cache().Restore(rig.sequence(b), snapshot).has_value());
  EXPECT_TRUE(rig.sequence(b).ready());
  rig.Append({{b, 4}});
}

TEST(Snapshots, SplitGivesTheParentThePagesAndTheChildTheState) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  rig.Append({{a, 18}});
  const TokenList tokens = rig.tokens(a);
  Snapshot child = CaptureSnapshot(rig, a);
  rig.Drop(a);
  const CacheStats before = rig.cache().stats();
  Snapshot parent = child.SplitFront(10);
  EXPECT_EQ(rig.cache().stats().used_bytes, before.used_bytes);
  EXPECT_EQ(parent.from(), 0);
  EXPECT_EQ(parent.to(), 10);
  EXPECT_EQ(child.from(), 10);
  EXPECT_EQ(child.to(), 18);
  EXPECT_FALSE(parent.has_state());
  EXPECT_EQ(parent.DeepestRestorable(10), 0);
  EXPECT_EQ(parent.bytes(), 3 * PageBytes(HybridLayout(), 0));
  EXPECT_EQ(child.bytes(),
            3 * PageBytes(HybridLayout(), 0) + 2 * PageBytes(HybridLayout(), 1) + SlotBytes(HybridLayout()));
  const size_t b = rig.Restore(child, tokens);
  rig.Append({{b, 1}});
  child.MergeFront(std::move(parent));
  EXPECT_EQ(child.from(), 0);
  EXPECT_TRUE(child.whole());
  rig.CheckAll();
}

TEST(Snapshots, SplitsAnywhereAndMergesByConcatenationForCausalKv) {
  Rig rig(CausalLayout(), kCausalRoom);
  const size_t a = rig.New();
  rig.Append({{a, 23}});
  for (Position at = 1; at < 23; ++at) {
    Snapshot child = CaptureSnapshot(rig, a);
    Snapshot parent = child.SplitFront(at);
    const size_t b = rig.Restore(parent, rig.tokens(a));
    EXPECT_EQ(rig.sequence(b).offset(), at);
    child.MergeFront(std::move(parent));
    EXPECT_EQ(child.bytes(), 6 * PageBytes(CausalLayout(), 0));
    rig.Drop(b);
  }
}

TEST(Snapshots, AWindowThatHasNotSlidSplitsToBothSides) {
  Rig rig({.page_tokens = 4, .groups = {WindowGroup(16)}}, {.pages = {64}});
  const size_t a = rig.New();
  rig.Append({{a, 14}});
  Snapshot child = CaptureSnapshot(rig, a);
  Snapshot parent = child.SplitFront(6);
  EXPECT_EQ(parent.DeepestRestorable(6), 6);
  const size_t b = rig.Restore(parent, rig.tokens(a));
  rig.Append({{b, 20}});
}

TEST(Snapshots, AreMoveOnlyAndProvablyReleased) {
  static_assert(!std::is_copy_constructible_v<Snapshot> && std::is_nothrow_move_constructible_v<Snapshot>);
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  rig.Append({{a, 13}});
  Snapshot first = CaptureSnapshot(rig, a);
  Snapshot second = std::move(first);
  EXPECT_TRUE(first.empty());
  rig.Drop(a);
  EXPECT_GT(rig.cache().stats().used_bytes, 0u);
  second = Snapshot();
  EXPECT_EQ(rig.cache().stats().used_bytes, 0u);
  rig.CheckAll();
}

TEST(Captures, SeveralInsideOneWriteAreCollectedInOrder) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  for (const Position at : {17, 3, 8, 20})
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
  rig.Append({{a, 20}});
  const std::vector<Snapshot> captures = rig.cache().TakeCaptures(rig.sequence(a));
  ASSERT_EQ(captures.size(), 4u);
  const Position bounds[] = {0, 3, 8, 17, 20};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(captures[i].from(), bounds[i]);
    EXPECT_EQ(captures[i].to(), bounds[i + 1]);
    EXPECT_TRUE(captures[i].whole());
    const size_t b = rig.Restore(captures[i], rig.tokens(a));
    EXPECT_EQ(rig.sequence(b).offset(), bounds[i + 1]);
    rig.Append({{b, 5}});
  }
  EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).empty());
}

TEST(Captures, SurviveACancelledPrefillUpToWhereItCame) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  for (const Position at : {3, 8, 12, 30})
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
  rig.Append({{a, 6}});
  rig.Append({{a, 5}});
  rig.CancelledAppend({{a, 9}});
  const TokenList tokens = rig.tokens(a);
  std::vector<Snapshot> captures = rig.cache().TakeCaptures(rig.sequence(a));
  rig.Drop(a);
  ASSERT_EQ(captures.size(), 2u);
  EXPECT_EQ(captures[0].to(), 3);
  EXPECT_EQ(captures[1].to(), 8);
  const size_t b = rig.Restore(captures[1], tokens);
  rig.Append({{b, 2}});
  rig.Drop(b);
  captures.clear();
  EXPECT_EQ(rig.cache().stats().used_bytes, 0u);
}

TEST(Captures, OfNoWidthAreEmpty) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  for (const Position at : {0, 5, 5})
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
  rig.Append({{a, 7}});
  const std::vector<Snapshot> captures = rig.cache().TakeCaptures(rig.sequence(a));
  ASSERT_EQ(captures.size(), 3u);
  EXPECT_TRUE(captures[0].empty());
  EXPECT_EQ(captures[1].to(), 5);
  EXPECT_TRUE(captures[2].empty());
  EXPECT_EQ(captures[2].bytes(), 0u);
  EXPECT_TRUE(rig.cache().CaptureSnapshot(rig.sequence(a), 7)->empty());
}

TEST(Captures, OfNoWidthGoWithTheTokensInFrontOfThem) {
  Rig rig(CausalLayout(), kCausalRoom);
  const size_t a = rig.New();
  rig.Append({{a, 5}});
  const Snapshot snapshot = CaptureSnapshot(rig, a);
  const auto capture_here = [&] {
    const Position at = rig.sequence(a).offset();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
    EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).back().empty());
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
  };
  capture_here();
  ASSERT_TRUE(rig.cache().Restore(rig.sequence(a), snapshot, 3).has_value());
  rig.SetTokens(a, {rig.tokens(a).begin(), rig.tokens(a).begin() + 3});
  EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).empty());
  rig.Append({{a, 4}});
  capture_here();
  rig.Truncate(a, 6);
  EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).empty());
  capture_here();
  rig.Truncate(a, 6);
  EXPECT_EQ(rig.cache().TakeCaptures(rig.sequence(a)).size(), 1u);
}

TEST(Captures, WithoutASlotAreSkippedAndCountedWhileTheStepGoesOn) {
  Rig rig(HybridLayout(), {.pages = {64, 64}, .slots = 2});
  const size_t a = rig.New();
  for (const Position at : {2, 4, 6})
    ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
  EXPECT_EQ(rig.Need({{a, 6}}).capture_slots, 2);
  rig.Append({{a, 6}});
  const std::vector<Snapshot> captures = rig.cache().TakeCaptures(rig.sequence(a));
  ASSERT_EQ(captures.size(), 2u);
  EXPECT_EQ(captures[0].to(), 2);
  EXPECT_EQ(captures[1].to(), 6);
  EXPECT_EQ(rig.cache().stats().captures_skipped, 1u);
}

// Pending captures are dropped with their tokens.
TEST(Captures, AreOfTokensThatTheSequenceStillHas) {
  Rig rig(CausalLayout(), kCausalRoom);
  const size_t a = rig.New();
  const auto schedule = [&](std::initializer_list<Position> offsets) {
    for (const Position at : offsets)
      ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), at).has_value());
  };
  schedule({4, 8, 12});
  rig.Append({{a, 12}});
  rig.Truncate(a, 9);
  schedule({10});
  rig.Append({{a, 3}});
  std::vector<Snapshot> captures = rig.cache().TakeCaptures(rig.sequence(a));
  ASSERT_EQ(captures.size(), 3u);
  EXPECT_EQ(captures[1].to(), 8);
  EXPECT_EQ(captures[2].from(), 8);
  EXPECT_EQ(captures[2].to(), 10);
  schedule({13, 14});
  rig.Append({{a, 2}});
  rig.RemoveRange(a, 12, 13);
  EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).empty());
  schedule({15});
  rig.Append({{a, 2}});
  ASSERT_TRUE(rig.cache().Restore(rig.sequence(a), captures[0]).has_value());
  rig.SetTokens(a, TokenList(rig.tokens(a).begin(), rig.tokens(a).begin() + 4));
  EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).empty());
  rig.CheckAll();
}

TEST(Captures, CancelledOnesAreNotTaken) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  ASSERT_TRUE(rig.cache().ScheduleCapture(rig.sequence(a), 3).has_value());
  rig.cache().CancelCaptures(rig.sequence(a));
  rig.Append({{a, 6}});
  EXPECT_TRUE(rig.cache().TakeCaptures(rig.sequence(a)).empty());
  EXPECT_EQ(rig.cache().ScheduleCapture(rig.sequence(a), 5).error().code, ErrorCode::kInvalid);
}

TEST(Tiers, ASnapshotsBytesCanBeTakenOutAndPutBack) {
  Rig rig(HybridLayout(), kRoom);
  const size_t a = rig.New();
  rig.Append({{a, 9}});
  const Snapshot before = CaptureSnapshot(rig, a);
  rig.Append({{a, 12}});
  const TokenList tokens = rig.tokens(a);
  std::vector<std::vector<std::byte>> parts;
  size_t bytes = 0;
  {
    const Snapshot snapshot = CaptureSnapshot(rig, a, 9);
    snapshot.ForEachPart([&](const Snapshot::Part& part) {
      parts.emplace_back(part.bytes.begin(), part.bytes.end());
      bytes += part.bytes.size();
    });
    EXPECT_EQ(bytes, snapshot.bytes());
  }
  rig.Drop(a);
  size_t next = 0;
  auto imported = rig.cache().Import(before, 9, 21, [&](const Snapshot::Part& part) {
    std::ranges::copy(parts.at(next++), part.bytes.begin());
  });
  ASSERT_TRUE(imported.has_value());
  EXPECT_EQ(next, parts.size());
  const size_t b = rig.Restore(*imported, tokens);
  EXPECT_EQ(rig.sequence(b).offset(), 21);
  rig.Append({{b, 7}});
  EXPECT_EQ(rig.cache().Import(before, 10, 12, [](const auto&) {}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(rig.cache().Import(Snapshot(), 0, 4000, [](const auto&) {}).error().code, ErrorCode::kOutOfPages);
}

TEST(RangeRemoval, ShiftsLaterPositionsAndRotatesTheirKeys) {
  for (Position begin = 0; begin < 14; ++begin) {
    for (Position end = begin + 1; end <= 14; ++end) {
      Rig rig(CausalLayout(), kCausalRoom);
      const size_t a = rig.New();
      rig.Append({{a, 14}});
      rig.RemoveRange(a, begin, end);
      rig.Append({{a, 5}});
    }
  }
}

TEST(RangeRemoval, MovesRowsOfEveryElementTypeInEveryWindowThatHasNotSlid) {
  for (const ElementType element :
       {ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kQ8_0, ElementType::kI16}) {
    const AttentionGroup group{.layers = 2, .kv_heads = 2, .head_dim = 32, .element = element};
    AttentionGroup window = group;
    window.window = 16;
    Rig rig({.page_tokens = 4, .groups = {group, window}}, {.pages = {16, 16}});
    const size_t a = rig.New();
    rig.Append({{a, 15}});
    const size_t b = rig.Fork(a, 15);
    rig.RemoveRange(a, 3, 8);
    rig.RemoveRange(b, 0, 1);
    rig.Append({{a, 9}, {b, 9}});
  }
}

TEST(RangeRemoval, WritesPrivateCopiesWherePagesAreShared) {
  Rig rig(CausalLayout(), {.pages = {15}});
  const size_t a = rig.New();
  rig.Append({{a, 22}});
  const size_t b = rig.Fork(a, 22);
  rig.RemoveRange(b, 5, 10);
  EXPECT_EQ(rig.cache().stats().pages_used[0], 6 + 4);
  rig.Append({{a, 1}, {b, 1}});
  const size_t c = rig.Fork(a, 23);
  const size_t d = rig.Fork(a, 23);
  const Error error = rig.cache().RemoveRange(rig.sequence(c), 0, 2, [](const auto&) {}).error();
  EXPECT_EQ(error.code, ErrorCode::kOutOfPages);
  rig.CheckAll();
  rig.Drop(a);
  rig.Drop(d);
  rig.RemoveRange(c, 0, 2);
}

TEST(RangeRemoval, IsRefusedWithRecurrentLayersAndPastASlidWindow) {
  Rig hybrid(HybridLayout(), kRoom);
  const size_t a = hybrid.New();
  hybrid.Append({{a, 9}});
  const auto refused = hybrid.cache().RemoveRange(hybrid.sequence(a), 2, 4, [](const auto&) {});
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(hybrid.cache().RemoveRange(hybrid.sequence(a), 4, 4, [](const auto&) {}).error().code,
            ErrorCode::kInvalid);
  EXPECT_EQ(hybrid.cache().RemoveRange(hybrid.sequence(a), 4, 10, [](const auto&) {}).error().code,
            ErrorCode::kInvalid);
  hybrid.CheckAll();

  Rig window({.page_tokens = 4, .groups = {FullGroup(), WindowGroup(8)}}, {.pages = {64, 64}});
  const size_t b = window.New();
  window.Append({{b, 23}});
  EXPECT_EQ(window.cache().RemoveRange(window.sequence(b), 20, 22, [](const auto&) {}).error().code,
            ErrorCode::kUnsupported);
  window.CheckAll();
  window.RemoveRange(b, 3, 9);
  window.Append({{b, 6}});
}

TEST(RangeRemoval, MarksLaterSnapshotsAsNotExact) {
  Rig rig(CausalLayout(), kCausalRoom);
  const size_t a = rig.New();
  rig.Append({{a, 20}});
  rig.RemoveRange(a, 6, 9);
  EXPECT_FALSE(CaptureSnapshot(rig, a).exact());
  rig.Append({{a, 2}});
  EXPECT_FALSE(CaptureSnapshot(rig, a).exact());
  rig.Truncate(a, 6);
  rig.Append({{a, 4}});
  EXPECT_TRUE(CaptureSnapshot(rig, a).exact());
}

}  // namespace
}  // namespace quire::cache
