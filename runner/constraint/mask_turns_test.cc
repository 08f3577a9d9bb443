#include "runner/constraint/mask_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

const std::string kGreedy = "greedy", kOther = "other";

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

  const TestVocabulary vocabulary_;
  const std::shared_ptr<Constraint> ambiguous_ =
      Constrain({api::OutputFormat::Kind::kGrammar,
                 "root ::= text\ntext ::= word text | \"0\"\nword ::= [^\\x00] word | [^\\x01]", "grammar"},
                vocabulary_);
};

TEST_F(MaskTurnsTest, ThirtyAnswersOfOnePartyTakeOneStepsWork) {
  std::vector<Matcher> matchers(30, Expensive());
  std::vector<MaskRequest> requests;
  for (Matcher& matcher : matchers) requests.push_back({&matcher, &kGreedy});
  Matcher other = Cheap();
  requests.push_back({&other, &kOther});
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
  for (Matcher& matcher : matchers) requests.push_back({&matcher, &kGreedy});
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
  const std::vector<MaskRequest> requests = {{&expensive, &kGreedy}, {&cheap, &kOther}};
  MaskTurns turns;
  EXPECT_TRUE(turns.Prepare(requests, Work(Expensive()) + Work(Cheap()) + 10'000));
}

TEST_F(MaskTurnsTest, MasksThatAreThereNeedNoSteps) {
  Matcher matcher = Cheap();
  const std::vector<MaskRequest> requests = {{&matcher, &kOther}};
  MaskTurns turns;
  EXPECT_TRUE(turns.Prepare({}, 0));
  EXPECT_FALSE(turns.Prepare(requests, 0));
  matcher.Mask();
  EXPECT_TRUE(turns.Prepare(requests, 0));
}

}  // namespace
}  // namespace quire::runner::constraint
