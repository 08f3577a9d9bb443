#include "runner/engine/shares/place_share.h"

#include <gtest/gtest.h>

#include <span>
#include <string_view>
#include <vector>

namespace quire::runner::engine {
namespace {

using Places = std::vector<Place>;

Place PlaceOf(std::string_view party, std::string_view member, uint64_t arrival) {
  return {.party = party, .arrival = arrival, .member = member};
}

TEST(PlaceToGive, APartyWithoutOneGetsTheYoungestOfTheLargest) {
  const Places running{{"a", 1}, {"b", 2}, {"b", 5}, {"b", 4}, {"a", 9}};
  EXPECT_EQ(PlaceToGive(running, {"c"}), 2U);
}

TEST(PlaceToGive, APartyThatRunsGetsNoMore) {
  EXPECT_EQ(PlaceToGive(Places{{"a", 1}, {"b", 2}, {"b", 3}}, {"a"}), std::nullopt);
}

TEST(PlaceToGive, NobodyLosesTheOnlyPlace) {
  EXPECT_EQ(PlaceToGive(Places{{"a", 1}, {"b", 2}}, {"c"}), std::nullopt);
  EXPECT_EQ(PlaceToGive({}, {"c"}), std::nullopt);
}

// However many exchanges an address has, another address gets a place of it.
TEST(PlaceToGive, AnAddressIsOnePartyWithAllItsExchanges) {
  const Places running{PlaceOf("10.0.0.1", "x", 1), PlaceOf("10.0.0.1", "y", 2), PlaceOf("10.0.0.1", "z", 3)};
  EXPECT_EQ(PlaceToGive(running, {"10.0.0.2", "w"}), 2U);
  EXPECT_EQ(PlaceToGive(running, {"key"}), 2U);
  EXPECT_EQ(PlaceToGive(running, {"10.0.0.1", "w"}), std::nullopt) << "nobody behind it has two";
}

TEST(PlaceToGive, ExchangesOfAnAddressShareItsPlaces) {
  const Places running{PlaceOf("a", "chat", 9), PlaceOf("a", "choices", 2), PlaceOf("a", "choices", 3),
                       PlaceOf("key", "", 4),   PlaceOf("key", "", 5),      PlaceOf("key", "", 6),
                       PlaceOf("key", "", 7)};
  EXPECT_EQ(PlaceToGive(running, {"a", "another"}), 2U) << "of its own party only";
  EXPECT_EQ(PlaceToGive(running, {"a", "chat"}), std::nullopt);
  EXPECT_EQ(PlaceToGive(running, {"b", "one"}), 6U);
  const std::span<const Place> without_key = std::span(running).first(3);
  EXPECT_EQ(PlaceToGive(without_key, {"b", "one"}), 2U) << "the youngest of all is its exchange's only one";
  EXPECT_EQ(PlaceToPreempt(without_key), 2U);
}

TEST(PlaceToGive, AStalledRequestGivesItsPlaceToAnybody) {
  const Places running{{"a", 1, true}, {"b", 2}, {"b", 3}};
  EXPECT_EQ(PlaceToGive(running, {"b"}), 0U);
  EXPECT_EQ(PlaceToGive(running, {"c"}), 0U);
}

TEST(PlaceToGive, WhatCannotBeComputedAgainGoesLast) {
  EXPECT_EQ(PlaceToGive(Places{{"a", 1}, {"a", 2, false, false}, {"a", 3, false, false}}, {"c"}), 0U);
  EXPECT_EQ(PlaceToGive(Places{{"a", 1, false, false}, {"a", 2, false, false}}, {"c"}), 1U);
  EXPECT_EQ(PlaceToGive(Places{{"a", 1, true, false}, {"a", 2, true, false}}, {"c"}), 1U);
}

TEST(PlacesToGive, AsManyAsTheMemoryTakes) {
  const Places running{{"a", 1, false, true, 10},
                       {"b", 2, false, true, 40},
                       {"a", 3, false, true, 10},
                       {"a", 4, false, true, 10}};
  EXPECT_EQ(PlacesToGive(running, {"c"}, 0), std::vector<size_t>{3});
  EXPECT_EQ(PlacesToGive(running, {"c"}, 10), std::vector<size_t>{3});
  EXPECT_EQ(PlacesToGive(running, {"c"}, 15), (std::vector<size_t>{3, 2}));
  EXPECT_EQ(PlacesToGive(running, {"c"}, 25), std::vector<size_t>{}) << "nobody loses the only place";
  EXPECT_EQ(PlacesToGive(running, {"a"}, 0), std::vector<size_t>{});
  EXPECT_EQ(PlacesToGive({}, {"a"}, 5), std::vector<size_t>{});
}

// Whose reserve is less than a request needs that has grown: it would wait for them for as long as they
// stall.
TEST(PlacesToGive, StalledOnesGoEvenIfTheyDoNotMakeRoomEnough) {
  const Places stalled{{"a", 1, true, true, 10}, {"b", 2, true, true, 10}};
  EXPECT_EQ(PlacesToGive(stalled, {"c"}, 50).size(), 2U);
  const Places one_reads{{"a", 1, true, true, 10}, {"b", 2, false, true, 10}};
  EXPECT_EQ(PlacesToGive(one_reads, {"c"}, 50), std::vector<size_t>{}) << "its memory is waited for";
}

TEST(PlaceToPreempt, TheLargestPartyLosesItsYoungest) {
  EXPECT_EQ(PlaceToPreempt(Places{{"a", 1}, {"b", 9}, {"a", 3}, {"a", 2}}), 2U);
  EXPECT_EQ(PlaceToPreempt(Places{{"a", 1}, {"b", 9}}), 1U);
  EXPECT_EQ(PlaceToPreempt(Places{{"a", 1}, {"b", 2, true}, {"a", 3}}), 1U);
  EXPECT_EQ(PlaceToPreempt(Places{{"a", 1}, {"a", 2, false, false}}), 0U);
  EXPECT_EQ(PlaceToPreempt(Places{{"a", 1}}), 0U);
}

TEST(PlaceToPreempt, AShortRequestIsNotPreemptedForALongOne) {
  const Place endless{.party = "a", .arrival = 1, .work = 40'960};
  const Place shorter{.party = "a", .arrival = 9, .work = 20};
  EXPECT_EQ(PlaceToPreempt(Places{endless, shorter}), 0U);
  const Place about_as_long{.party = "a", .arrival = 9, .work = 40'000};
  EXPECT_EQ(PlaceToPreempt(Places{endless, about_as_long}), 1U);
}

}  // namespace
}  // namespace quire::runner::engine
