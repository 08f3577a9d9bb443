// What views show of a store.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "cache/snapshot_store.h"
#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

TokenList Count(size_t count, TokenId first = 0) {
  TokenList tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TokenList Joined(TokenList head, const TokenList& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

struct Seen {
  uint64_t id, parent;
  Position from, to;
  StoreAccounting::Bytes bytes;
  size_t leases;
  uint64_t hits;
};

class StoreView : public ::testing::Test {
 protected:
  StoreView()
      : rig_({.page_tokens = 4, .groups = {FullGroup()}}, {.pages = {256}, .slots = 64}),
        store_(rig_.cache(), {.budget_bytes = SIZE_MAX}) {}

  // Computes the tokens from what is stored; the sequence's lease is returned.
  Lease Run(const TokenList& tokens, std::string_view key = "a") {
    store_.AdvanceClock();
    const size_t i = rig_.New();
    Restored hit = store_.Restore(key, tokens, rig_.sequence(i));
    rig_.SetTokens(i, TokenList(tokens.begin(), tokens.begin() + hit.restored));
    const auto at = static_cast<Position>(tokens.size());
    EXPECT_TRUE(rig_.cache().ScheduleCapture(rig_.sequence(i), at).has_value());
    rig_.AppendTokens(i, TokenList(tokens.begin() + hit.restored, tokens.end()));
    Lease lease;
    for (Snapshot& snapshot : rig_.cache().TakeCaptures(rig_.sequence(i))) {
      auto inserted = store_.Insert(key, tokens, std::move(snapshot));
      EXPECT_TRUE(inserted.has_value());
      lease = *std::move(inserted);
    }
    rig_.Drop(i);
    return lease;
  }

  std::vector<Seen> Nodes(std::string_view key = "a") {
    std::vector<Seen> nodes;
    store_.VisitNodes(key, [&](const NodeView& view) {
      EXPECT_EQ(view.isolation, key);
      EXPECT_EQ(view.tokens.size(), static_cast<size_t>(view.to - view.from));
      nodes.push_back({view.id, view.parent, view.from, view.to, view.bytes, view.leases, view.hits});
    });
    return nodes;
  }

  Rig rig_;
  SnapshotStore store_;
};

// The node that lived before a split is its lower half, so that a picture can follow it.
TEST_F(StoreView, ASplitKeepsTheOldNodeBelowTheNewOne) {
  (void)Run(Count(12));
  const auto before = Nodes();
  ASSERT_EQ(before.size(), 1);
  EXPECT_EQ(before[0].parent, 0);
  (void)Run(Joined(Count(6), Count(4, 100)));
  const auto after = Nodes();
  ASSERT_EQ(after.size(), 3);  // parents before children
  EXPECT_EQ(after[0].from, 0);
  EXPECT_EQ(after[0].to, 6);
  EXPECT_NE(after[0].id, before[0].id);
  const Seen& lower = after[1].id == before[0].id ? after[1] : after[2];
  EXPECT_EQ(lower.id, before[0].id);
  EXPECT_EQ(lower.parent, after[0].id);
  EXPECT_EQ(lower.from, 6);
  EXPECT_EQ(lower.to, 12);
}

TEST_F(StoreView, BytesAreThoseOfTheStoreWithSharedOnesInEachNode) {
  (void)Run(Count(12));
  (void)Run(Joined(Count(6), Count(4, 100)));
  size_t all = 0;
  for (const Seen& node : Nodes()) all += node.bytes.full + node.bytes.window + node.bytes.slot;
  const StoreStats stats = store_.stats();
  EXPECT_EQ(all, stats.bytes + stats.shared_bytes);
  EXPECT_GT(stats.shared_bytes, 0);  // the page that token 6 is in
  EXPECT_GT(Nodes()[0].bytes.shared, 0);
}

TEST_F(StoreView, CountsUseAndTellsKeysApart) {
  (void)Run(Count(12));
  {
    const Lease stays = Run(Count(12));
    EXPECT_EQ(Nodes()[0].hits, 1);
    EXPECT_EQ(Nodes()[0].leases, 1);
  }
  EXPECT_EQ(Nodes()[0].leases, 0);
  (void)Run(Count(9), "b");
  EXPECT_EQ(store_.NodesOf("a"), 1);
  EXPECT_EQ(store_.NodesOf("b"), 1);
  EXPECT_EQ(store_.NodesOf("c"), 0);
  EXPECT_EQ(Nodes("b")[0].to, 9);
  size_t others = 0;
  store_.VisitNodesOfOthers("b", [&](const NodeView& view) {
    EXPECT_EQ(view.isolation, "a");
    ++others;
  });
  EXPECT_EQ(others, 1);
}

TEST_F(StoreView, ChangesGrowWithWhatIsShownAndNotWithLooking) {
  const uint64_t empty = store_.changes();
  (void)Run(Count(12));
  const uint64_t one = store_.changes();
  EXPECT_GT(one, empty);
  (void)Nodes();
  (void)store_.Probe("a", Count(12));
  EXPECT_EQ(store_.changes(), one);
  (void)Run(Count(12));  // a hit
  const uint64_t used = store_.changes();
  EXPECT_GT(used, one);
  store_.Clear();
  EXPECT_GT(store_.changes(), used);
}

// Neither what another key does nor how much of it was new is visible in one's own view.
TEST_F(StoreView, AnotherKeyChangesNoNumberOfOnesOwn) {
  EXPECT_EQ(store_.ChangesOf("a"), 0);
  (void)Run(Count(12));
  const uint64_t before = store_.ChangesOf("a");
  EXPECT_EQ(before, store_.changes());
  (void)Run(Joined(Count(6), Count(4, 100)), "b");
  (void)Run(Joined(Count(3), Count(4, 200)), "b");
  EXPECT_EQ(store_.ChangesOf("a"), before);
  EXPECT_GT(store_.ChangesOf("b"), before);
  (void)Run(Joined(Count(6), Count(4, 100)));
  EXPECT_GT(store_.ChangesOf("a"), before);
  std::vector<uint64_t> numbers, parents;
  store_.VisitNodes("a", [&](const NodeView& view) {
    numbers.push_back(view.number);
    parents.push_back(view.parent_number);
  });
  std::ranges::sort(numbers);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(std::ranges::count(parents, 0U), 1);
  EXPECT_EQ(std::ranges::count(parents, parents.back()), 2);
}

TEST_F(StoreView, AContinuationFollowsTheLastUsedPrefix) {
  (void)Run(Joined(Count(6), Count(6, 50)));
  (void)Run(Joined(Count(6), Count(6, 70)));
  const TokenList prompt = Joined(Count(6), Count(3, 90));
  EXPECT_EQ(store_.Continuation("a", prompt, 6, 3), Count(3, 70));
  EXPECT_EQ(store_.Continuation("a", prompt, 4, 4), Joined(Count(2, 4), Count(2, 70)));
  EXPECT_EQ(store_.Continuation("a", prompt, 6, 100), Count(6, 70));
  EXPECT_TRUE(store_.Continuation("b", prompt, 6, 3).empty());
}

}  // namespace
}  // namespace quire::cache
