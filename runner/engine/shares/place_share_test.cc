#include "runner/engine/shares/place_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quire::runner::engine {
namespace {

using Places = std::vector<Place>;

Place PlaceOf(uint64_t party, uint64_t member, uint64_t arrival) {
  return {.party = party, .arrival = arrival, .member = member};
}

TEST(PlaceToGive, APartyWithoutOneGetsTheYoungestOfTheLargest) {
  const Places running{{'a', 1}, {'b', 2}, {'b', 5}, {'b', 4}, {'a', 9}};
  EXPECT_EQ(PlaceToGive(running, {'c'}), 2U);
}

TEST(PlaceToGive, APartyThatRunsGetsNoMore) {
  EXPECT_EQ(PlaceToGive(Places{{'a', 1}, {'b', 2}, {'b', 3}}, {'a'}), std::nullopt);
}

TEST(PlaceToGive, NobodyLosesTheOnlyPlace) {
  EXPECT_EQ(PlaceToGive(Places{{'a', 1}, {'b', 2}}, {'c'}), std::nullopt);
  EXPECT_EQ(PlaceToGive({}, {'c'}), std::nullopt);
}

// However many exchanges an address has, another address gets a place of it.
TEST(PlaceToGive, AnAddressIsOnePartyWithAllItsExchanges) {
  const Places running{PlaceOf('1', 'x', 1), PlaceOf('1', 'y', 2), PlaceOf('1', 'z', 3)};
  EXPECT_EQ(PlaceToGive(running, {'2', 'w'}), 2U);
  EXPECT_EQ(PlaceToGive(running, {'k'}), 2U);
  EXPECT_EQ(PlaceToGive(running, {'1', 'w'}), std::nullopt) << "nobody behind it has two";
}

TEST(PlaceToGive, ExchangesOfAnAddressShareItsPlaces) {
  const Places running{PlaceOf('a', 'c', 9), PlaceOf('a', 'o', 2), PlaceOf('a', 'o', 3), PlaceOf('k', 0, 4),
                       PlaceOf('k', 0, 5),   PlaceOf('k', 0, 6),   PlaceOf('k', 0, 7)};
  EXPECT_EQ(PlaceToGive(running, {'a', 'n'}), 2U) << "of its own party only";
  EXPECT_EQ(PlaceToGive(running, {'a', 'c'}), std::nullopt);
  EXPECT_EQ(PlaceToGive(running, {'b', 'n'}), 6U);
  const std::span<const Place> without_key = std::span(running).first(3);
  EXPECT_EQ(PlaceToGive(without_key, {'b', 'n'}), 2U) << "the youngest of all is its exchange's only one";
  EXPECT_EQ(PlaceToPreempt(without_key), 2U);
}

TEST(PlaceToGive, AStalledRequestGivesItsPlaceToAnybody) {
  const Places running{{'a', 1, true}, {'b', 2}, {'b', 3}};
  EXPECT_EQ(PlaceToGive(running, {'b'}), 0U);
  EXPECT_EQ(PlaceToGive(running, {'c'}), 0U);
}

TEST(PlaceToGive, WhatCannotBeComputedAgainGoesLast) {
  EXPECT_EQ(PlaceToGive(Places{{'a', 1}, {'a', 2, false, false}, {'a', 3, false, false}}, {'c'}), 0U);
  EXPECT_EQ(PlaceToGive(Places{{'a', 1, false, false}, {'a', 2, false, false}}, {'c'}), 1U);
  EXPECT_EQ(PlaceToGive(Places{{'a', 1, true, false}, {'a', 2, true, false}}, {'c'}), 1U);
}

TEST(PlacesToGive, AsManyAsTheMemoryTakes) {
  const Places running{{'a', 1, false, true, 10},
                       {'b', 2, false, true, 40},
                       {'a', 3, false, true, 10},
                       {'a', 4, false, true, 10}};
  EXPECT_EQ(PlacesToGive(running, {'c'}, 0), std::vector<size_t>{3});
  EXPECT_EQ(PlacesToGive(running, {'c'}, 10), std::vector<size_t>{3});
  EXPECT_EQ(PlacesToGive(running, {'c'}, 15), (std::vector<size_t>{3, 2}));
  EXPECT_EQ(PlacesToGive(running, {'c'}, 25), std::vector<size_t>{}) << "nobody loses the only place";
  EXPECT_EQ(PlacesToGive(running, {'a'}, 0), std::vector<size_t>{});
  EXPECT_EQ(PlacesToGive({}, {'a'}, 5), std::vector<size_t>{});
}

// Whose reserve is less than a request needs that has grown: it would wait for them for as long as they
// stall.
TEST(PlacesToGive, StalledOnesGoEvenIfTheyDoNotMakeRoomEnough) {
  const Places stalled{{'a', 1, true, true, 10}, {'b', 2, true, true, 10}};
  EXPECT_EQ(PlacesToGive(stalled, {'c'}, 50).size(), 2U);
  const Places one_reads{{'a', 1, true, true, 10}, {'b', 2, false, true, 10}};
  EXPECT_EQ(PlacesToGive(one_reads, {'c'}, 50), std::vector<size_t>{}) << "its memory is waited for";
}

TEST(PlaceToPreempt, TheLargestPartyLosesItsYoungest) {
  EXPECT_EQ(PlaceToPreempt(Places{{'a', 1}, {'b', 9}, {'a', 3}, {'a', 2}}), 2U);
  EXPECT_EQ(PlaceToPreempt(Places{{'a', 1}, {'b', 9}}), 1U);
  EXPECT_EQ(PlaceToPreempt(Places{{'a', 1}, {'b', 2, true}, {'a', 3}}), 1U);
  EXPECT_EQ(PlaceToPreempt(Places{{'a', 1}, {'a', 2, false, false}}), 0U);
  EXPECT_EQ(PlaceToPreempt(Places{{'a', 1}}), 0U);
}

TEST(PlaceToPreempt, AShortRequestIsNotPreemptedForALongOne) {
  const Place endless{.party = 'a', .arrival = 1, .work = 40'960};
  const Place shorter{.party = 'a', .arrival = 9, .work = 20};
  EXPECT_EQ(PlaceToPreempt(Places{endless, shorter}), 0U);
  const Place about_as_long{.party = 'a', .arrival = 9, .work = 40'000};
  EXPECT_EQ(PlaceToPreempt(Places{endless, about_as_long}), 1U);
}

using std::chrono::milliseconds;

constexpr PlaceRotation::Time kRotationStart = PlaceRotation::Time{} + std::chrono::hours(1);
constexpr int64_t kEndless = 40'960;

Place PlaceOfMember(uint64_t member, uint64_t given, bool produced = true) {
  return {
      .party = 'a', .arrival = given, .bytes = 10, .member = member, .given = given, .produced = produced};
}

RotationCandidate CandidateOf(uint64_t member, uint64_t arrival, bool has_run, int64_t work = kEndless) {
  return {.owner = {'a', member},
          .arrival = arrival,
          .waits_since = arrival,
          .has_run = has_run,
          .work = work,
          .bytes = 10};
}

// Who gets the place, and whose it is: indexes. {-1, -1}: nobody.
std::pair<int, int> ChosenOf(const std::vector<Place>& running,
                             const std::vector<RotationCandidate>& waiting) {
  const auto handover = PlaceRotation().Choose(running, waiting, 0, kRotationStart);
  if (!handover) return {-1, -1};
  EXPECT_EQ(handover->leaving.size(), 1U);
  return {static_cast<int>(handover->next), static_cast<int>(handover->leaving[0])};
}

using Pair = std::pair<int, int>;

TEST(PlaceRotation, AMemberWithoutAPlaceGetsTheOneGivenLongestAgo) {
  const std::vector<Place> running{PlaceOfMember('x', 3), PlaceOfMember('y', 1), PlaceOfMember('z', 2)};
  EXPECT_EQ(ChosenOf(running, {CandidateOf('n', 9, false)}), Pair(0, 1));
  EXPECT_EQ(ChosenOf(running, {CandidateOf('x', 9, false)}), Pair(-1, -1)) << "it has one";
  EXPECT_EQ(ChosenOf({}, {CandidateOf('n', 9, false)}), Pair(-1, -1));
}

TEST(PlaceRotation, WhereSomebodyHasTwoAnotherRuleApplies) {
  const std::vector<Place> running{PlaceOfMember('x', 1), PlaceOfMember('x', 2), PlaceOfMember('z', 3)};
  EXPECT_EQ(ChosenOf(running, {CandidateOf('n', 9, false)}), Pair(-1, -1));
}

// However many endless ones wait, whether or not they have run.
TEST(PlaceRotation, AShortOrNewRequestIsNext) {
  const std::vector<Place> running{PlaceOfMember('x', 1), PlaceOfMember('y', 2)};
  EXPECT_EQ(ChosenOf(running, {CandidateOf('r', 3, true), CandidateOf('n', 9, false)}).first, 1);
  EXPECT_EQ(
      ChosenOf(running, {CandidateOf('p', 3, false), CandidateOf('q', 9, false), CandidateOf('r', 8, false)})
          .first,
      1)
      << "the newest of equals";
  EXPECT_EQ(ChosenOf(running,
                     {CandidateOf('p', 3, false), CandidateOf('s', 4, false, 20), CandidateOf('q', 9, false)})
                .first,
            1);
  EXPECT_EQ(ChosenOf(running, {CandidateOf('p', 3, false, 20), CandidateOf('q', 9, false, 31)}).first, 1)
      << "about the same work";
}

TEST(PlaceRotation, AnAnswerThatIsNearlyDoneIsNext) {
  const std::vector<Place> running{PlaceOfMember('x', 1), PlaceOfMember('y', 2)};
  const std::vector<RotationCandidate> waiting{CandidateOf('p', 3, true), CandidateOf('n', 9, false),
                                               CandidateOf('e', 8, true, 7), CandidateOf('l', 10, true, 7)};
  EXPECT_EQ(ChosenOf(running, waiting).first, 2);
}

// The choices of one request.
TEST(PlaceRotation, AMemberThatHasRunIsNotNewWithAnotherRequest) {
  const std::vector<Place> running{PlaceOfMember('x', 1), PlaceOfMember('y', 2)};
  const std::vector<RotationCandidate> waiting{CandidateOf('o', 3, true), CandidateOf('o', 9, false),
                                               CandidateOf('n', 5, false)};
  EXPECT_EQ(ChosenOf(running, waiting).first, 2);
}

TEST(PlaceRotation, OneThatHasRunWaitsForATokenOfTheOther) {
  const std::vector<Place> prompts{PlaceOfMember('x', 1, false), PlaceOfMember('y', 2, false)};
  EXPECT_EQ(ChosenOf(prompts, {CandidateOf('r', 3, true)}), Pair(-1, -1));
  EXPECT_EQ(ChosenOf(prompts, {CandidateOf('r', 3, true), CandidateOf('n', 9, false)}), Pair(1, 0));
  EXPECT_EQ(ChosenOf({PlaceOfMember('x', 1, false), PlaceOfMember('y', 2)}, {CandidateOf('r', 3, true)}),
            Pair(0, 1));
}

TEST(PlaceRotation, AsManyLeaveAsTheMemoryTakes) {
  std::vector<Place> running{PlaceOfMember('x', 1), PlaceOfMember('y', 2), PlaceOfMember('z', 3)};
  std::vector<RotationCandidate> waiting{CandidateOf('n', 9, false)};
  waiting[0].bytes = 25;
  const PlaceRotation rotation;
  EXPECT_EQ(rotation.Choose(running, waiting, 0, kRotationStart)->leaving, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(rotation.Choose(running, waiting, 10, kRotationStart)->leaving, (std::vector<size_t>{0, 1}));
  waiting[0].bytes = 31;
  EXPECT_EQ(rotation.Choose(running, waiting, 0, kRotationStart)->leaving, (std::vector<size_t>{0, 1, 2}))
      << "answers grow: they have more than is counted, and nobody is left";
  running.push_back({.party = 'o', .arrival = 4, .bytes = 10});
  EXPECT_FALSE(rotation.Choose(running, waiting, 0, kRotationStart))
      << "it waits for the other party's memory";
  waiting.push_back(CandidateOf('s', 5, false));
  EXPECT_EQ(rotation.Choose(running, waiting, 0, kRotationStart)->next, 1U)
      << "it does not wait for the large one";
  // One that is paused leaves its place and no memory; one that cannot leave keeps both.
  running[0].leaving = Leaving::kPaused;
  EXPECT_EQ(rotation.Choose(running, waiting, 10, kRotationStart)->leaving, std::vector<size_t>{0});
  running[0].leaving = Leaving::kInexact;
  EXPECT_EQ(rotation.Choose(running, waiting, 0, kRotationStart)->leaving, std::vector<size_t>{1});
}

TEST(PlaceRotation, OneThatComesBackWithOtherBitsLeavesLastAndForNewOnesOnly) {
  std::vector<Place> running{PlaceOfMember('x', 1), PlaceOfMember('y', 2), PlaceOfMember('z', 3)};
  running[0].leaving = Leaving::kInexact;
  std::vector<RotationCandidate> waiting{CandidateOf('n', 9, false)};
  waiting[0].bytes = 25;
  const PlaceRotation rotation;
  EXPECT_EQ(rotation.Choose(running, waiting, 0, kRotationStart)->leaving, (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(rotation.Choose(running, waiting, 5, kRotationStart)->leaving, (std::vector<size_t>{1, 2}));
  for (Place& place : running) place.produced = true;
  waiting[0].has_run = true;
  EXPECT_FALSE(rotation.Choose(running, waiting, 0, kRotationStart)) << "it would be so again and again";
}

TEST(PlaceRotation, HandoversOfAPartyAreAnIntervalApart) {
  std::vector<Place> running;
  for (uint64_t i = 0; i < 10; ++i) running.push_back({.party = 'a', .member = 'A' + i});
  const std::vector<RotationCandidate> waiting{CandidateOf('n', 9, false)};
  PlaceRotation rotation;
  rotation.Record({.party = 'a'}, running, kRotationStart);
  EXPECT_FALSE(rotation.Choose(running, waiting, 10, kRotationStart + milliseconds(99)));
  EXPECT_TRUE(rotation.Choose(running, waiting, 10, kRotationStart + milliseconds(100)));
  rotation.Record({.party = 'b'}, running, kRotationStart + milliseconds(100));
  EXPECT_TRUE(rotation.Choose(running, waiting, 10, kRotationStart + milliseconds(100))) << "another party's";
  // Few places: a quarter of a slice.
  PlaceRotation few;
  few.Record({.party = 'a'}, std::span(running).first(1), kRotationStart);
  EXPECT_FALSE(few.Choose(running, waiting, 10, kRotationStart + milliseconds(249)));
  EXPECT_TRUE(few.Choose(running, waiting, 10, kRotationStart + milliseconds(250)));
}

TEST(PlaceRotation, PartiesWithOnePlaceEachTakeTurnsToo) {
  std::vector<Place> running{{.party = 'a', .given = 2}, {.party = 'b', .given = 1}};
  EXPECT_EQ(ChosenOf(running, {{.owner = {'c'}}}), Pair(0, 1));
  EXPECT_EQ(ChosenOf(running, {{.owner = {'a'}}}), Pair(-1, -1)) << "it has one";
  running.push_back({.party = 'a', .given = 3});
  EXPECT_EQ(ChosenOf(running, {{.owner = {'c'}}}), Pair(-1, -1)) << "it gets one of a's at once";
}

// 4 places, 36 endless members and a short request, a new one each time it has run: it waits for at most one
// interval, and every endless one runs again within four handovers for each of those that wait longer.
TEST(PlaceRotation, NobodyStarves) {
  std::vector<Place> running;
  std::vector<RotationCandidate> waiting;
  uint64_t events = 0;
  for (int i = 0; i < 36; ++i) {
    if (i < 4) {
      running.push_back(PlaceOfMember('A' + static_cast<uint64_t>(i), ++events));
    } else {
      waiting.push_back(CandidateOf('A' + static_cast<uint64_t>(i), ++events, false));
    }
  }
  PlaceRotation rotation;
  auto now = kRotationStart;
  std::vector<int> shorts;    // handovers that each short one waited for
  std::vector<int> last(36);  // handover at which each endless one ran last
  int longest = 0;
  for (int handover = 1; handover <= 2000; ++handover, now += PlaceRotation::kTimeSlice / 4) {
    const auto is_short = [](const RotationCandidate& candidate) { return candidate.work < kEndless; };
    if (std::ranges::none_of(waiting, is_short)) {
      waiting.push_back(CandidateOf('s', ++events, false, 20));
      shorts.push_back(0);
    }
    ++shorts.back();
    const auto chosen = rotation.Choose(running, waiting, 0, now);
    ASSERT_TRUE(chosen);
    rotation.Record(chosen->scope, running, now);
    const RotationCandidate next = waiting[chosen->next];
    waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(chosen->next));
    Place& place = running[chosen->leaving[0]];
    if (next.work < kEndless) continue;  // done before the next handover; the place goes back
    waiting.push_back(CandidateOf(place.member, ++events, true));
    place = PlaceOfMember(next.owner.member, ++events);
    const auto index = static_cast<size_t>(next.owner.member - 'A');
    longest = std::max(longest, handover - std::exchange(last[index], handover));
  }
  EXPECT_LE(std::ranges::max(shorts), 2) << "the fourth handover goes to one that waits longest";
  EXPECT_LE(longest, 4 * 36);
  EXPECT_GT(std::ranges::min(last), 2000 - 4 * 36) << "one starves";
}

}  // namespace
}  // namespace quire::runner::engine
