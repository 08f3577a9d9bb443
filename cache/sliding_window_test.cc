// Sliding windows: what they map, what they show, and how far they rewind.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

TEST(SlidingWindow, MemoryIsBoundedByTheWindowAndOneBatch) {
  Rig rig({.page_tokens = 4, .groups = {WindowGroup(10)}}, {.pages = {32}});
  const size_t a = rig.New();
  for (const int32_t batch : {1, 3, 17, 1, 1, 8, 29, 2, 1, 1, 1}) {
    rig.Append({{a, batch}});
    EXPECT_LE(rig.cache().stats().pages_used[0], 10 / 4 + 2);
  }
}

// The set of visible positions of each token, in prefill, decode and across the window's edge.
TEST(SlidingWindow, ATokenSeesExactlyItsWindow) {
  for (const int32_t window : {1, 3, 4, 5, 8, 13}) {
    Rig rig({.page_tokens = 4, .groups = {WindowGroup(window)}}, {.pages = {64}});
    const size_t a = rig.New();
    for (const int32_t batch : {2, 1, 9, 1, 1, 1, 16, 3}) rig.Append({{a, batch}});
    EXPECT_EQ(rig.tokens(a).size(), 34u);
  }
}

TEST(SlidingWindow, ATokenSeesExactlyItsChunk) {
  for (const int32_t chunk : {1, 3, 4, 5, 8, 13}) {
    Rig rig({.page_tokens = 4, .groups = {ChunkGroup(chunk)}}, {.pages = {64}});
    const size_t a = rig.New();
    for (const int32_t batch : {2, 1, 9, 1, 1, 1, 16, 3}) rig.Append({{a, batch}});
    EXPECT_EQ(rig.tokens(a).size(), 34u);
  }
}

TEST(SlidingWindow, RewindIsLegalOnlyWhileTheWindowHasNotSlid) {
  Rig rig({.page_tokens = 4, .groups = {WindowGroup(8)}}, {.pages = {32}});
  const size_t a = rig.New();
  rig.Append({{a, 7}});
  rig.Truncate(a, 2);
  rig.Append({{a, 18}});
  auto refused = rig.cache().Truncate(rig.sequence(a), 10);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  rig.CheckAll();
  const size_t b = rig.Fork(a, 10);
  EXPECT_FALSE(rig.sequence(b).ready());
  EXPECT_FALSE(rig.cache().Truncate(rig.sequence(a), 18).has_value());
  rig.Append({{a, 2}});
}

// Every offset around a window of 8: what is accepted must show the tokens that a sequence computed afresh
// has.
TEST(SlidingWindow, AFullWindowRewindsWhileThePagesThatItNeedsAreMapped) {
  for (const int32_t page_tokens : {1, 2, 4, 32}) {
    for (Position offset = 7; offset <= 12; ++offset) {
      for (Position to = 1; to < offset; ++to) {
        SCOPED_TRACE(testing::Message() << page_tokens << " " << offset << " " << to);
        Rig rig({.page_tokens = page_tokens, .groups = {WindowGroup(8)}}, {.pages = {64}});
        const size_t a = rig.New();
        rig.Append({{a, static_cast<int32_t>(offset)}});
        const Position sees = std::max<Position>(to - 7, 0);      // a token at `to`
        const Position kept = std::max<Position>(offset - 7, 0);  // one at `offset`
        const bool legal = sees >= kept - kept % page_tokens;
        const size_t fork = rig.Fork(a, to);
        EXPECT_EQ(rig.sequence(fork).ready(), legal);
        if (legal) rig.Append({{fork, 9}});
        const Snapshot snapshot = *rig.cache().CaptureSnapshot(rig.sequence(a));
        EXPECT_EQ(snapshot.DeepestRestorable(to), legal ? to : 0);
        if (legal) rig.Append({{rig.Restore(snapshot, rig.tokens(a), to), 3}});
        if (legal) {
          rig.Truncate(a, to);
          rig.Append({{a, 9}});
        } else {
          EXPECT_FALSE(rig.cache().Truncate(rig.sequence(a), to).has_value());
        }
        rig.CheckAll();
      }
    }
  }
}

// A removal leaves rows behind that are in a mapped page and are no longer the sequence's.
TEST(SlidingWindow, DoesNotRewindToRowsThatARemovalDidNotMove) {
  Rig rig({.page_tokens = 4, .groups = {WindowGroup(4)}}, {.pages = {64}});
  const size_t a = rig.New();
  rig.Append({{a, 7}});
  rig.RemoveRange(a, 0, 2);  // 5 are left, and the next token sees those from 2 on
  EXPECT_FALSE(rig.cache().Truncate(rig.sequence(a), 4).has_value());
  rig.Append({{a, 2}});
}

}  // namespace
}  // namespace quire::cache
