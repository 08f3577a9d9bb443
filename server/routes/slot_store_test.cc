#include "server/routes/slot_store.h"

#include <gtest/gtest.h>

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

TEST(SlotStore, OldSlotsMakeRoomAndSnapshotsAreRefused) {
  SlotStore store(/*tokens_max=*/1000);
  const SlotPrefix large{std::vector<api::TokenId>(400, 7)};
  for (int32_t slot = 0; slot < 3; ++slot) store.Record(kAlice, slot, large);
  EXPECT_EQ(store.FindSlot(kAlice, 0), nullptr);
  EXPECT_NE(store.FindSlot(kAlice, 2), nullptr);
  store.Record(kAlice, 1, large);
  store.Record(kAlice, 3, large);
  EXPECT_EQ(store.FindSlot(kAlice, 2), nullptr) << "the one that was recorded first";
  EXPECT_TRUE(store.Save(kAlice, "a", large));
  EXPECT_TRUE(store.Save(kAlice, "b", large));
  EXPECT_EQ(store.Save(kBob, "c", large).error().code, api::ErrorCode::kTooLarge);
  EXPECT_TRUE(store.Save(kAlice, "a", large)) << "in the place of its old self";
  EXPECT_EQ(store.FindSnapshot(kBob, "c"), nullptr);
}

}  // namespace
}  // namespace quire::server
