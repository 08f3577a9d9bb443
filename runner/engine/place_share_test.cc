#include "runner/engine/place_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::runner::engine {
namespace {

using Places = std::vector<Place>;

TEST(PlaceToGive, APartyWithoutOneGetsTheYoungestOfTheLargest) {
  const Places running{{"a", 1}, {"b", 2}, {"b", 5}, {"b", 4}, {"a", 9}};
  EXPECT_EQ(PlaceToGive(running, "c"), 2U);
}

TEST(PlaceToGive, APartyThatRunsGetsNoMore) {
  EXPECT_EQ(PlaceToGive(Places{{"a", 1}, {"b", 2}, {"b", 3}}, "a"), std::nullopt);
}

TEST(PlaceToGive, NobodyLosesTheOnlyPlace) {
  EXPECT_EQ(PlaceToGive(Places{{"a", 1}, {"b", 2}}, "c"), std::nullopt);
  EXPECT_EQ(PlaceToGive({}, "c"), std::nullopt);
}

TEST(PlaceToGive, AStalledRequestGivesItsPlaceToAnybody) {
  const Places running{{"a", 1, true}, {"b", 2}, {"b", 3}};
  EXPECT_EQ(PlaceToGive(running, "b"), 0U);
  EXPECT_EQ(PlaceToGive(running, "c"), 0U);
}

TEST(PlaceToGive, WhatCannotBeComputedAgainGoesLast) {
  EXPECT_EQ(PlaceToGive(Places{{"a", 1}, {"a", 2, false, false}, {"a", 3, false, false}}, "c"), 0U);
  EXPECT_EQ(PlaceToGive(Places{{"a", 1, false, false}, {"a", 2, false, false}}, "c"), 1U);
  EXPECT_EQ(PlaceToGive(Places{{"a", 1, true, false}, {"a", 2, true, false}}, "c"), 1U);
}

}  // namespace
}  // namespace quire::runner::engine
