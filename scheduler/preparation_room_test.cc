#include "scheduler/preparation_room.h"

#include <gtest/gtest.h>

namespace quire::scheduler {
namespace {

constexpr PreparationLimits kLimits{.small = 10, .all = 100, .party = 60};

TEST(PreparationRoom, APartysLargeRequestsGoInAsOthersArePrepared) {
  PreparationRoom room(kLimits);
  EXPECT_TRUE(room.HasRoomFor(50, "alice"));
  EXPECT_EQ(room.Add(50, "alice"), 50U);
  EXPECT_FALSE(room.HasRoomFor(11, "alice"));
  EXPECT_TRUE(room.HasRoomFor(10, "alice")) << "small ones wait for nothing";
  EXPECT_EQ(room.Add(10, "alice"), 0U);
  EXPECT_EQ(room.bytes(), 50U);
  room.Remove(0, "alice");
  room.Remove(50, "alice");
  EXPECT_TRUE(room.HasRoomFor(60, "alice"));
  EXPECT_EQ(room.bytes(), 0U);
}

TEST(PreparationRoom, ARequestAboveEveryLimitGoesAlone) {
  PreparationRoom room(kLimits);
  EXPECT_TRUE(room.HasRoomFor(1000, "alice"));
  EXPECT_EQ(room.Add(1000, "alice"), 1000U);
  EXPECT_FALSE(room.HasRoomFor(11, "alice"));
}

TEST(PreparationRoom, APartyWithNothingThereIsNotDelayed) {
  PreparationRoom room(kLimits);
  room.Add(1000, "alice");
  EXPECT_TRUE(room.HasRoomFor(50, "bob"));
  room.Add(20, "bob");
  EXPECT_FALSE(room.HasRoomFor(20, "bob")) << "all have more than the limit";
  room.Remove(1000, "alice");
  EXPECT_TRUE(room.HasRoomFor(20, "bob"));
}

}  // namespace
}  // namespace quire::scheduler
