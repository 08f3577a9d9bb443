#include "scheduler/preparation_room.h"

#include <gtest/gtest.h>

namespace quire::scheduler {
namespace {

constexpr PreparationLimits kLimits{.small = 10, .all = 100, .party = 60};

TEST(PreparationRoom, APartysLargeRequestsGoInAsOthersArePrepared) {
  PreparationRoom room(kLimits);
  EXPECT_TRUE(room.HasRoomFor(50, fair::PartyNamed("alice")));
  EXPECT_EQ(room.Add(50, fair::PartyNamed("alice")), 50U);
  EXPECT_FALSE(room.HasRoomFor(11, fair::PartyNamed("alice")));
  EXPECT_TRUE(room.HasRoomFor(10, fair::PartyNamed("alice"))) << "small ones wait for nothing";
  EXPECT_EQ(room.Add(10, fair::PartyNamed("alice")), 0U);
  EXPECT_EQ(room.bytes(), 50U);
  room.Remove(0, fair::PartyNamed("alice"));
  room.Remove(50, fair::PartyNamed("alice"));
  EXPECT_TRUE(room.HasRoomFor(60, fair::PartyNamed("alice")));
  EXPECT_EQ(room.bytes(), 0U);
}

TEST(PreparationRoom, ARequestAboveEveryLimitGoesAlone) {
  PreparationRoom room(kLimits);
  EXPECT_TRUE(room.HasRoomFor(1000, fair::PartyNamed("alice")));
  EXPECT_EQ(room.Add(1000, fair::PartyNamed("alice")), 1000U);
  EXPECT_FALSE(room.HasRoomFor(11, fair::PartyNamed("alice")));
}

TEST(PreparationRoom, APartyWithNothingThereIsNotDelayed) {
  PreparationRoom room(kLimits);
  room.Add(1000, fair::PartyNamed("alice"));
  EXPECT_TRUE(room.HasRoomFor(50, fair::PartyNamed("bob")));
  room.Add(20, fair::PartyNamed("bob"));
  EXPECT_FALSE(room.HasRoomFor(20, fair::PartyNamed("bob"))) << "all have more than the limit";
  room.Remove(1000, fair::PartyNamed("alice"));
  EXPECT_TRUE(room.HasRoomFor(20, fair::PartyNamed("bob")));
}

}  // namespace
}  // namespace quire::scheduler
