#include "cache/owner_shares.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cache/snapshot_store.h"
#include "cache/testing/test_rig.h"

namespace quire::cache {
namespace {

constexpr size_t kPages = 12;
constexpr size_t kHistoryPages = 2;  // of 8 tokens

Layout FourTokenPages() { return {.page_tokens = 4, .groups = {FullGroup()}}; }

TokenList History(TokenId first) {
  TokenList tokens(kHistoryPages * 4);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A store of kPages pages, and what owners keep there.
class OwnersOfNodes : public testing::Test {
 protected:
  void Make(std::chrono::nanoseconds spared_for, int32_t pool_pages = 256) {
    rig_ = std::make_unique<Rig>(FourTokenPages(), Capacity{.pages = {pool_pages}, .slots = 4});
    store_ = std::make_unique<SnapshotStore>(
        rig_->cache(),
        StoreOptions{.budget_bytes = kPages * PageBytes(FourTokenPages(), 0), .spared_for = spared_for});
  }

  void Insert(TokenId first, std::string_view owner) {
    store_->AdvanceClock();
    const size_t i = rig_->New();
    rig_->AppendTokens(i, History(first));
    EXPECT_TRUE(
        store_->Insert("", History(first), *rig_->cache().CaptureSnapshot(rig_->sequence(i)), false, owner)
            .has_value());
    rig_->Drop(i);
    Check();
  }

  void Use(TokenId first, std::string_view owner) {
    const size_t i = rig_->New();
    EXPECT_GT(store_->Restore("", History(first), rig_->sequence(i), owner).restored, 0);
    rig_->Drop(i);
    Check();
  }

  // How many of the histories from `first`, 100 apart, are still there.
  int CountKept(TokenId first, int count) {
    int kept = 0;
    for (int i = 0; i < count; ++i)
      kept += store_->Probe("", History(first + 100 * i)).restorable > 0 ? 1 : 0;
    return kept;
  }

  void Check() {
    const auto ok = store_->CheckInvariants();
    EXPECT_TRUE(ok.has_value()) << ok.error();
  }

  std::unique_ptr<Rig> rig_;
  std::unique_ptr<SnapshotStore> store_;
};

TEST_F(OwnersOfNodes, WhoFillsTheStoreEvictsNodesOfItsOwn) {
  Make(std::chrono::hours(24));
  for (int i = 0; i < 3; ++i) Insert(1000 + 100 * i, "one");
  for (int i = 0; i < 40; ++i) Insert(10000 + 100 * i, "many");
  EXPECT_EQ(CountKept(1000, 3), 3);
  EXPECT_EQ(CountKept(10000, 40), 3);
}

TEST_F(OwnersOfNodes, WhatIsBeyondAShareIsNotSpared) {
  Make(std::chrono::hours(24));
  for (int i = 0; i < 6; ++i) Insert(1000 + 100 * i, "one");  // alone: all of it
  EXPECT_EQ(CountKept(1000, 6), 6);
  for (int i = 0; i < 40; ++i) Insert(10000 + 100 * i, "many");
  EXPECT_EQ(CountKept(1000, 6), 3);
}

TEST_F(OwnersOfNodes, WhoIsGoneIsNotSpared) {
  Make(std::chrono::nanoseconds(0));
  for (int i = 0; i < 3; ++i) Insert(1000 + 100 * i, "one");
  for (int i = 0; i < 40; ++i) Insert(10000 + 100 * i, "many");
  EXPECT_EQ(CountKept(1000, 3), 0);
}

TEST_F(OwnersOfNodes, WhatRunsForAnOwnerIsItsToo) {
  Make(std::chrono::hours(24), kPages);
  for (int i = 0; i < 2; ++i) Insert(1000 + 100 * i, "one");
  for (int i = 0; i < 40; ++i) Insert(10000 + 100 * i, "many");
  TokenList tokens(4 * (kPages - 2 * kHistoryPages));
  std::iota(tokens.begin(), tokens.end(), 50000);
  const size_t i = rig_->New();
  OwnerShares::Claim runs = store_->EnterRunning("many");
  runs.SetBytes((kPages - 2 * kHistoryPages) * PageBytes(FourTokenPages(), 0));
  rig_->AppendTokens(i, tokens);
  EXPECT_EQ(CountKept(1000, 2), 2);
  EXPECT_EQ(CountKept(10000, 40), 0);
  // Nothing else is left: what runs goes before what is only kept.
  rig_->AppendTokens(i, {7, 8, 9});
  EXPECT_EQ(CountKept(1000, 2), 1);
  rig_->Drop(i);
  Check();
}

TEST_F(OwnersOfNodes, OfThreeTheLargestGivesWay) {
  Make(std::chrono::hours(24));
  Insert(1000, "small");
  for (int i = 0; i < 2; ++i) Insert(2000 + 100 * i, "middle");
  for (int i = 0; i < 40; ++i) Insert(10000 + 100 * i, "large");
  EXPECT_EQ(CountKept(1000, 1), 1);
  EXPECT_EQ(CountKept(2000, 2), 2);
  for (int i = 0; i < 40; ++i) Insert(20000 + 100 * i, "middle");
  EXPECT_EQ(CountKept(1000, 1), 1);
  EXPECT_EQ(CountKept(10000, 40), 2)
      << "of 12 pages 2 are the small one's, and each of the others has about half of the rest";
}

TEST_F(OwnersOfNodes, ANodeStaysItsOwnersWhileThatUsesIt) {
  Make(std::chrono::hours(24));
  Insert(1000, "one");
  for (int i = 0; i < 20; ++i) {
    Insert(10000 + 100 * i, "many");
    Use(1000, "many");
  }
  for (int i = 0; i < 20; ++i) Insert(20000 + 100 * i, "many");
  EXPECT_EQ(CountKept(1000, 1), 1);
}

TEST(OwnerShares, WhoUsesANodeOfOneThatIsGoneTakesItOver) {
  OwnerShares shares(std::chrono::nanoseconds(0));
  OwnerShares::Claim claim = shares.Enter("gone");
  claim.SetBytes(100);
  const auto before = OwnerShares::Clock::now();
  while (OwnerShares::Clock::now() == before) continue;
  shares.Use(claim, "here");
  EXPECT_EQ(claim.owner()->name, "here");
  EXPECT_EQ(claim.owner()->bytes, 100U);
  EXPECT_EQ(shares.owners(), 1U);
}

TEST(OwnerShares, DueIsWhatOthersHaveOfTheirParts) {
  OwnerShares shares(std::chrono::hours(1));
  OwnerShares::Claim small = shares.Enter("small");
  small.SetBytes(10);
  OwnerShares::Claim large = shares.Enter("large");
  large.SetBytes(70);
  OwnerShares::Claim running = shares.EnterRunning("third");
  running.SetBytes(20);
  const OwnerShares::Due due = shares.BytesDue(90);
  EXPECT_EQ(due.part, 30U);
  EXPECT_EQ(shares.BytesDueToOthers(due, "third"), 40U);
  EXPECT_EQ(shares.BytesDueToOthers(due, "large"), 10U);
  EXPECT_EQ(shares.BytesDueToOthers(due, "fourth"), 40U);
  // What runs for it is in its part.
  OwnerShares::Claim runs = shares.EnterRunning("small");
  runs.SetBytes(5);
  EXPECT_EQ(shares.BytesDueToOthers(shares.BytesDue(90), "fourth"), 10U + 30U);
}

TEST(OwnerShares, AnOwnerWithoutNodesIsForgotten) {
  OwnerShares shares(std::chrono::hours(1));
  {
    OwnerShares::Claim first = shares.Enter("a");
    first.SetBytes(5);
    OwnerShares::Claim second = first.Copy();
    second.SetBytes(7);
    EXPECT_EQ(first.owner()->bytes, 12U);
    first = shares.Enter("b");
    EXPECT_EQ(second.owner()->bytes, 7U);
    EXPECT_EQ(shares.owners(), 2U);
  }
  EXPECT_EQ(shares.owners(), 0U);
}

}  // namespace
}  // namespace quire::cache
