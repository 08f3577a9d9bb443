#include "server/routes/slot_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ranges>
#include <string>
#include <vector>

namespace quire::server {
namespace {

const SlotOwner kAlice{"alice", "model"};
const SlotOwner kBob{"bob", "model"};
const fair::PartyId kAt1 = fair::PartyNamed("192.0.2.1"), kAt2 = fair::PartyNamed("192.0.2.2");

TEST(SlotStore, SlotsAndSnapshotsBelongToTheirOwner) {
  SlotStore store;
  store.Record(kAlice, kAt1, 0, {{1, 2, 3}});
  EXPECT_EQ(store.FindSlot(kBob, 0), nullptr);
  EXPECT_EQ(store.FindSlot(kAlice, 1), nullptr);
  ASSERT_NE(store.FindSlot(kAlice, 0), nullptr);
  ASSERT_TRUE(store.Save(kAlice, kAt1, "chat", *store.FindSlot(kAlice, 0)));
  store.Record(kAlice, kAt1, 0, {{4}});
  EXPECT_EQ(store.FindSnapshot(kAlice, "chat")->tokens, (std::vector<api::TokenId>{1, 2, 3}));
  EXPECT_EQ(store.FindSnapshot(kBob, "chat"), nullptr);
  EXPECT_EQ(store.Erase(kAlice, 0), 1U);
  EXPECT_EQ(store.Erase(kAlice, 0), 0U);
  EXPECT_NE(store.FindSnapshot(kAlice, "chat"), nullptr);
}

SlotPrefix Tokens(size_t count) { return {std::vector<api::TokenId>(count, 7)}; }

TEST(SlotStore, OldSlotsMakeRoomAndSnapshotsAreRefused) {
  SlotStore store(/*tokens_max=*/10'000);
  const SlotPrefix large = Tokens(4000);
  for (int32_t slot = 0; slot < 3; ++slot) store.Record(kAlice, kAt1, slot, large);
  EXPECT_EQ(store.FindSlot(kAlice, 0), nullptr);
  EXPECT_NE(store.FindSlot(kAlice, 2), nullptr);
  store.Record(kAlice, kAt1, 1, large);
  store.Record(kAlice, kAt1, 3, large);
  EXPECT_EQ(store.FindSlot(kAlice, 2), nullptr) << "the one that was recorded first";
  store.Record(kAlice, kAt1, 3, Tokens(20'000));
  EXPECT_EQ(store.FindSlot(kAlice, 3), nullptr) << "no slot has as much";
  EXPECT_NE(store.FindSlot(kAlice, 1), nullptr);
  EXPECT_TRUE(store.Save(kAlice, kAt1, "a", large));
  EXPECT_TRUE(store.Save(kAlice, kAt1, "b", large));
  EXPECT_EQ(store.Save(kAlice, kAt1, "c", large).error().code, api::ErrorCode::kTooLarge);
  EXPECT_TRUE(store.Save(kAlice, kAt1, "a", large)) << "in the place of its old self";
  EXPECT_EQ(store.FindSnapshot(kAlice, "c"), nullptr);
  EXPECT_EQ(store.Save(kBob, kAt2, "d", Tokens(20'000)).error().code, api::ErrorCode::kTooLarge);
  EXPECT_NE(store.FindSnapshot(kAlice, "a"), nullptr) << "what is refused takes nothing from others";
}

TEST(SlotStore, APartyWithMuchMakesRoomForOneWithLittle) {
  SlotStore store(/*tokens_max=*/10'000);
  store.Record(kBob, kAt2, 0, Tokens(1000));
  for (int32_t slot = 0; slot < 50; ++slot) store.Record(kAlice, kAt1, slot, Tokens(1000));
  EXPECT_NE(store.FindSlot(kBob, 0), nullptr);
  EXPECT_NE(store.FindSlot(kAlice, 49), nullptr);
  EXPECT_EQ(store.FindSlot(kAlice, 0), nullptr);

  for (int i = 0; i < 50; ++i) (void)store.Save(kAlice, kAt1, std::to_string(i), Tokens(1000));
  EXPECT_NE(store.FindSnapshot(kAlice, "0"), nullptr);
  EXPECT_TRUE(store.Save(kBob, kAt2, "mine", Tokens(1000)));
  EXPECT_TRUE(store.Save(kBob, kAt2, "other", Tokens(1000)));
  EXPECT_NE(store.FindSnapshot(kBob, "mine"), nullptr);
  EXPECT_EQ(store.FindSnapshot(kAlice, "0"), nullptr) << "saved first";
  EXPECT_NE(store.FindSnapshot(kAlice, "3"), nullptr);
  EXPECT_FALSE(store.Save(kAlice, kAt1, "0", Tokens(1000)));
  EXPECT_NE(store.FindSnapshot(kBob, "mine"), nullptr);
}

// Whoever makes up a credential for each request has no more than another one.
TEST(SlotStore, AsManyTenantsAsOneLikesHaveNoMore) {
  constexpr size_t kEntry = 1300;  // tokens and names
  SlotStore store(/*tokens_max=*/10 * kEntry);
  const auto count = [&store](const std::string& prefix) {
    return std::ranges::count_if(std::views::iota(0, 100), [&](int i) {
      return store.FindSlot({prefix + std::to_string(i), "model"}, 0) != nullptr;
    });
  };
  const auto record = [&](const std::string& tenant, const fair::PartyId& party) {
    store.Record({tenant, "model"}, party, 0, Tokens(1000));
  };
  for (int i = 0; i < 100; ++i) record("a" + std::to_string(i), kAt1);
  EXPECT_EQ(count("a"), 10);
  for (int i = 0; i < 5; ++i) record("b" + std::to_string(i), kAt2);
  for (int i = 0; i < 100; ++i) record("a" + std::to_string(i), kAt1);
  EXPECT_EQ(count("b"), 5);
  // Many parties have as much as each may have: the next one finds no room, and takes none beyond the bound.
  for (int i = 0; i < 100; ++i) record("c" + std::to_string(i), fair::PartyNamed("c" + std::to_string(i)));
  EXPECT_LE(count("a") + count("b") + count("c"), 10);
}

// Snapshots of one token with long names took seven times what they were counted as.
TEST(SlotStore, NamesAndSaltsCount) {
  SlotStore store(/*tokens_max=*/100'000);
  const SlotPrefix salted{.tokens = {1}, .cache_salt = std::string(1000, 's'), .num_ctx = 0};
  int saved = 0;
  while (store.Save(kAlice, kAt1, std::to_string(saved) + std::string(220, 'n'), salted)) ++saved;
  EXPECT_GT(saved, 100);
  EXPECT_LT(saved, 200) << "some 2.2 KB each";
}

}  // namespace
}  // namespace quire::server
