#include "runner/constraint/mask_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

constexpr uint64_t kOne = 1, kMany = 2;  // members

class MaskTurnsTest : public testing::Test {
 protected:
  // Behind some bytes each of its masks takes many walks through the vocabulary.
  Matcher Expensive() {
    Matcher matcher(ambiguous_);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(matcher.Accept('x' + 2));
    return matcher;
  }
  Matcher Cheap() { return Matcher(Constrain(SchemaFormat(R"({"type":"object"})"), vocabulary_)); }
  // The steps that its mask takes, where the table already has what it can.
  static uint64_t Work(const Matcher& matcher) {
    Matcher(matcher).Mask();
    uint64_t slice = ~uint64_t{0};
    EXPECT_TRUE(Matcher(matcher).PrepareMask(slice));
    return ~slice;
  }

  const fair::PartyId greedy_ = fair::PartyNamed("greedy"), other_ = fair::PartyNamed("other");
  const TestVocabulary vocabulary_;
  const std::shared_ptr<Constraint> ambiguous_ = Constrain(
      {api::OutputFormat::Kind::kGrammar,
       "root ::= text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]", "grammar"},
      vocabulary_);
};

TEST_F(MaskTurnsTest, ThirtyAnswersOfOnePartyTakeOneStepsWork) {
  std::vector<Matcher> matchers(30, Expensive());
  std::vector<MaskRequest> requests;
  for (Matcher& matcher : matchers) requests.push_back({&matcher, greedy_, kOne});
  Matcher other = Cheap();
  requests.push_back({&other, other_, kOne});
  const uint64_t step = Work(Expensive()) / 2;
  ASSERT_GT(step, 50'000U);
  MaskTurns turns;
  EXPECT_FALSE(turns.Prepare(requests, step));
  EXPECT_TRUE(other.has_mask());
  EXPECT_LT(std::ranges::count_if(matchers, &Matcher::has_mask), 5);
  int steps = 1;
  while (!turns.Prepare(requests, step)) ++steps;
  EXPECT_GT(steps, 20);
  Matcher alone = Expensive();
  for (Matcher& matcher : matchers) ASSERT_EQ(matcher.Mask().Ids(), alone.Mask().Ids());
}

// It would have its mask last otherwise, each time.
TEST_F(MaskTurnsTest, NoAnswerOfAPartyStarves) {
  std::vector<Matcher> matchers(4, Expensive());
  std::vector<MaskRequest> requests;
  for (Matcher& matcher : matchers) requests.push_back({&matcher, greedy_, kOne});
  const uint64_t step = Work(Expensive()) / 2;
  MaskTurns turns;
  std::vector<int> made(matchers.size());
  for (int i = 0; i < 80; ++i) {
    turns.Prepare(requests, step);
    for (size_t m = 0; m < matchers.size(); ++m) {
      if (!matchers[m].has_mask()) continue;
      ++made[m];
      matchers[m] = Expensive();
    }
  }
  EXPECT_GT(std::ranges::min(made), 0);
}

TEST_F(MaskTurnsTest, WhatOnePartyLeavesGoesToTheOthers) {
  Matcher expensive = Expensive(), cheap = Cheap();
  const std::vector<MaskRequest> requests = {{&expensive, greedy_, kOne}, {&cheap, other_, kOne}};
  MaskTurns turns;
  EXPECT_TRUE(turns.Prepare(requests, Work(Expensive()) + Work(Cheap()) + 10'000));
}

// Behind an address are several people: one who asks for many answers does not take what another needs.
TEST_F(MaskTurnsTest, MembersOfAPartyGetEqualParts) {
  Matcher one = Expensive();
  std::vector<Matcher> many(8, Expensive());
  std::vector<MaskRequest> requests;
  for (Matcher& matcher : many) requests.push_back({&matcher, greedy_, kMany});
  requests.push_back({&one, greedy_, kOne});
  const uint64_t step = Work(Expensive());
  ASSERT_GT(step / 16, kMaskPieceMin);
  MaskTurns turns;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(turns.Prepare(requests, step));
  EXPECT_TRUE(one.has_mask());
  EXPECT_EQ(std::ranges::count_if(many, &Matcher::has_mask), 0) << "neither does one of theirs take it all";
}

TEST_F(MaskTurnsTest, PartiesShareStepsByWeight) {
  std::vector<Matcher> matchers(16, Expensive());
  std::vector<MaskRequest> requests;
  const fair::PartyId heavy = fair::PartyNamed("heavy", 3);
  for (size_t i = 0; i < matchers.size(); ++i)
    requests.push_back({&matchers[i], i % 4 == 0 ? greedy_ : heavy, kOne});
  const uint64_t step = Work(Expensive());
  MaskTurns turns;
  std::array<int, 2> made{};
  for (int i = 0; i < 100; ++i) {
    turns.Prepare(requests, step);
    for (size_t m = 0; m < matchers.size(); ++m) {
      if (!matchers[m].has_mask()) continue;
      ++made[m % 4 == 0 ? 0 : 1];
      matchers[m] = Expensive();
    }
  }
  EXPECT_GT(made[0], 12);
  EXPECT_NEAR(static_cast<double>(made[1]) / made[0], 3, 0.4)
      << "where all finish in one step it has no work";
}

// As of an answer that was canceled.
TEST_F(MaskTurnsTest, AMaskThatNobodyAsksForAnyMoreIsForgotten) {
  MaskTurns turns;
  {
    Matcher gone = Expensive();
    EXPECT_FALSE(turns.Prepare(std::vector<MaskRequest>{{&gone, greedy_, kOne}}, kMaskPieceMin));
  }
  EXPECT_TRUE(turns.Prepare({}));
}

TEST_F(MaskTurnsTest, AStepTooSmallForAPieceMakesOne) {
  std::vector<Matcher> matchers(3, Expensive());
  std::vector<MaskRequest> requests;
  for (Matcher& matcher : matchers) requests.push_back({&matcher, greedy_, kMany});
  Matcher other = Expensive();
  requests.push_back({&other, other_, kOne});
  MaskTurns turns;
  int steps = 1;
  while (steps < 10'000 && !turns.Prepare(requests, kMaskPieceMin)) ++steps;
  EXPECT_LT(steps, 10'000);
  Matcher alone = Expensive();
  for (Matcher& matcher : matchers) EXPECT_EQ(matcher.Mask().Ids(), alone.Mask().Ids());
}

// The bytes of a token before the place where a piece goes on.
TEST_F(MaskTurnsTest, WhatAPieceRepeatsCountsForItAlone) {
  Matcher whole = Expensive(), pieces = Expensive();
  whole.Mask();
  uint64_t slice = 0, repeated = 0;
  while (!pieces.PrepareMask(slice)) {
    uint64_t too_small = pieces.repeated_steps();
    repeated += too_small;
    ASSERT_FALSE(pieces.PrepareMask(too_small));
    EXPECT_EQ(too_small, pieces.repeated_steps()) << "it does nothing";
    slice = pieces.repeated_steps() + 1;
  }
  EXPECT_GT(repeated, 10'000U);
  EXPECT_EQ(pieces.Mask().Ids(), whole.Mask().Ids());
  EXPECT_EQ(pieces.mask_steps(), whole.mask_steps());
}

TEST_F(MaskTurnsTest, MasksThatAreThereNeedNoSteps) {
  Matcher matcher = Cheap();
  const std::vector<MaskRequest> requests = {{&matcher, other_, kOne}};
  MaskTurns turns;
  EXPECT_TRUE(turns.Prepare({}, 0));
  EXPECT_FALSE(turns.Prepare(requests, 0));
  matcher.Mask();
  EXPECT_TRUE(turns.Prepare(requests, 0));
}

}  // namespace
}  // namespace quire::runner::constraint
