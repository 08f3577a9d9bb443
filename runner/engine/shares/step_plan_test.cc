#include "runner/engine/shares/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace quire::runner::engine {

bool operator==(const StepItem& a, const StepItem& b) {
  return a.sequence == b.sequence && a.tokens == b.tokens;
}
void PrintTo(const StepItem& item, std::ostream* out) { *out << item.sequence << ":" << item.tokens; }

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Sequences = std::vector<SequenceState>;

// All of one party.
std::vector<StepItem> Plan(const Sequences& sequences, int32_t prefill_tokens) {
  return PlanStep(sequences, std::vector<PartyState>(1), prefill_tokens);
}

TEST(PlanStep, GivesEveryDecodingSequenceOneToken) {
  EXPECT_THAT(Plan(Sequences{{}, {}, {}}, 8), ElementsAre(StepItem{0, 1}, StepItem{1, 1}, StepItem{2, 1}));
}

TEST(PlanStep, DecodesBesideAChunkOfAPrompt) {
  EXPECT_THAT(Plan(Sequences{{.prefill_left = 1000}, {}}, 64), ElementsAre(StepItem{0, 64}, StepItem{1, 1}));
}

TEST(PlanStep, ServesTheShortestRemainingPromptFirstAndFillsUpWithTheNext) {
  EXPECT_THAT(Plan(Sequences{{.prefill_left = 100}, {.prefill_left = 10}}, 64),
              ElementsAre(StepItem{0, 54}, StepItem{1, 10}));
}

TEST(PlanStep, LeavesOutAReaderThatDoesNotKeepUp) {
  EXPECT_THAT(Plan(Sequences{{.backpressured = true}, {}}, 64), ElementsAre(StepItem{1, 1}));
  EXPECT_THAT(Plan(Sequences{{.backpressured = true}}, 64), IsEmpty());
}

TEST(PlanStep, LeavesOutAPreemptedAnswerWhoseReaderDoesNotKeepUp) {
  EXPECT_THAT(Plan(Sequences{{.prefill_left = 3, .backpressured = true}}, 64), IsEmpty());
}

TEST(PlanStep, ForcedTokensAreNoPrompt) {
  EXPECT_THAT(Plan(Sequences{{.decode_left = 9}, {.prefill_left = 100}}, 8),
              ElementsAre(StepItem{0, 9}, StepItem{1, 8}));
}

TEST(PlanStep, BoundsTheTokensThatAreScored) {
  const std::vector<PartyState> parties(1);
  const auto plan = [&](int32_t prefill_tokens, int32_t scored_tokens) {
    const Sequences sequences{
        {.prefill_left = 50, .scored = true}, {.prefill_left = 60, .scored = true}, {.prefill_left = 200}};
    return PlanStep(sequences, parties, prefill_tokens, scored_tokens);
  };
  EXPECT_THAT(plan(256, 80), ElementsAre(StepItem{0, 50}, StepItem{1, 30}, StepItem{2, 176}));
  EXPECT_THAT(plan(256, 16), ElementsAre(StepItem{0, 16}, StepItem{2, 200}));
  EXPECT_THAT(plan(20, 80), ElementsAre(StepItem{0, 20}));
}

TEST(PlanStep, ALongPromptIsNotOvertakenForever) {
  // A stream of fresh short prompts against one long prompt that got nothing so far.
  int64_t skipped_tokens = 0;
  while (
      Plan(Sequences{{.prefill_left = 4000, .skipped_tokens = skipped_tokens}, {.prefill_left = 64}}, 64)[0]
          .sequence != 0) {
    skipped_tokens += 64;
    ASSERT_LT(skipped_tokens, (4000 + 64) * kAging);
  }
  EXPECT_GT(skipped_tokens, 0);
}

TEST(PlanStep, EqualPromptsAreServedOneAfterTheOther) {
  // The aging credit of the skipped prompts is less than the progress of the one ahead.
  Sequences sequences(8, {.prefill_left = 256});
  std::vector<size_t> finished;
  while (finished.size() < sequences.size()) {
    const auto items = Plan(sequences, 32);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const bool scheduled =
          std::ranges::any_of(items, [i](const StepItem& item) { return item.sequence == i; });
      if (!scheduled) sequences[i].skipped_tokens += 32;
    }
    for (const StepItem& item : items) {
      sequences[item.sequence].prefill_left -= item.tokens;
      if (sequences[item.sequence].prefill_left > 0) continue;
      sequences[item.sequence].backpressured = true;  // its decoding is another matter
      finished.push_back(item.sequence);
    }
  }
  EXPECT_THAT(finished, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(PlanStep, PartiesShareByWeightWhateverTheyAskFor) {
  // One party with ten prompts, another of twice its weight with one.
  Sequences sequences(10, {.prefill_left = 1 << 20});
  sequences.push_back({.prefill_left = 1 << 20, .party = 1});
  std::vector<PartyState> parties = {{.virtual_time = 0, .weight = 1}, {.virtual_time = 0, .weight = 2}};
  std::vector<int64_t> got(2);
  for (int step = 0; step < 300; ++step) {
    for (const StepItem& item : PlanStep(sequences, parties, 64)) {
      const size_t party = sequences[item.sequence].party;
      got[party] += item.tokens;
      parties[party].virtual_time += item.tokens / parties[party].weight;
    }
  }
  EXPECT_EQ(got[1], 2 * got[0]);
}

TEST(PlanStep, NothingToDo) { EXPECT_THAT(Plan({}, 64), IsEmpty()); }

}  // namespace
}  // namespace quire::runner::engine
