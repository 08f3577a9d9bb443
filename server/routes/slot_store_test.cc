#include "server/routes/slot_store.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::server {
namespace {

const SlotOwner kAlice{"alice", "model"};
const SlotOwner kBob{"bob", "model"};

TEST(SlotStore, SlotsAndSnapshotsBelongToTheirOwner) {
  SlotStore store;
  store.Record(kAlice, 0, {{1, 2, 3}});
  EXPECT_EQ(store.FindSlot(kBob, 0), nullptr);
  EXPECT_EQ(store.FindSlot(kAlice, 1), nullptr);
  ASSERT_NE(store.FindSlot(kAlice, 0), nullptr);
  ASSERT_TRUE(store.Save(kAlice, "chat", *store.FindSlot(kAlice, 0)));
  store.Record(kAlice, 0, {{4}});
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
  for (int32_t slot = 0; slot < 3; ++slot) store.Record(kAlice, slot, large);
  EXPECT_EQ(store.FindSlot(kAlice, 0), nullptr);
  EXPECT_NE(store.FindSlot(kAlice, 2), nullptr);
  store.Record(kAlice, 1, large);
  store.Record(kAlice, 3, large);
  EXPECT_EQ(store.FindSlot(kAlice, 2), nullptr) << "the one that was recorded first";
  store.Record(kAlice, 4, Tokens(20'000));
  EXPECT_NE(store.FindSlot(kAlice, 4), nullptr);
  EXPECT_EQ(store.FindSlot(kAlice, 3), nullptr);
  EXPECT_TRUE(store.Save(kAlice, "a", large));
  EXPECT_TRUE(store.Save(kAlice, "b", large));
  EXPECT_EQ(store.Save(kAlice, "c", large).error().code, api::ErrorCode::kTooLarge);
  EXPECT_TRUE(store.Save(kAlice, "a", large)) << "in the place of its old self";
  EXPECT_EQ(store.FindSnapshot(kAlice, "c"), nullptr);
  EXPECT_EQ(store.Save(kBob, "d", Tokens(20'000)).error().code, api::ErrorCode::kTooLarge);
  EXPECT_NE(store.FindSnapshot(kAlice, "a"), nullptr) << "what is refused takes nothing from others";
}

TEST(SlotStore, ATenantWithMuchMakesRoomForOneWithLittle) {
  SlotStore store(/*tokens_max=*/10'000);
  store.Record(kBob, 0, Tokens(1000));
  for (int32_t slot = 0; slot < 50; ++slot) store.Record(kAlice, slot, Tokens(1000));
  EXPECT_NE(store.FindSlot(kBob, 0), nullptr);
  EXPECT_NE(store.FindSlot(kAlice, 49), nullptr);
  EXPECT_EQ(store.FindSlot(kAlice, 0), nullptr);

  for (int i = 0; i < 50; ++i) (void)store.Save(kAlice, std::to_string(i), Tokens(1000));
  EXPECT_NE(store.FindSnapshot(kAlice, "0"), nullptr);
  EXPECT_TRUE(store.Save(kBob, "mine", Tokens(1000)));
  EXPECT_TRUE(store.Save(kBob, "other", Tokens(1000)));
  EXPECT_NE(store.FindSnapshot(kBob, "mine"), nullptr);
  EXPECT_EQ(store.FindSnapshot(kAlice, "0"), nullptr) << "saved first";
  EXPECT_NE(store.FindSnapshot(kAlice, "3"), nullptr);
  EXPECT_FALSE(store.Save(kAlice, "0", Tokens(1000)));
  EXPECT_NE(store.FindSnapshot(kBob, "mine"), nullptr);
}

// Snapshots of one token with long names took seven times what they were counted as.
TEST(SlotStore, NamesAndSaltsCount) {
  SlotStore store(/*tokens_max=*/100'000);
  const SlotPrefix salted{.tokens = {1}, .cache_salt = std::string(1000, 's'), .num_ctx = 0};
  int saved = 0;
  while (store.Save(kAlice, std::to_string(saved) + std::string(220, 'n'), salted)) ++saved;
  EXPECT_GT(saved, 100);
  EXPECT_LT(saved, 200) << "some 2.2 KB each";
}

}  // namespace
}  // namespace quire::server
