#include "runner/engine/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::runner::engine {

bool operator==(const StepItem& a, const StepItem& b) {
  return a.sequence == b.sequence && a.tokens == b.tokens;
}
void PrintTo(const StepItem& item, std::ostream* out) { *out << item.sequence << ":" << item.tokens; }

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Sequences = std::vector<SequenceState>;

TEST(PlanStep, GivesEveryDecodingSequenceOneToken) {
  EXPECT_THAT(PlanStep(Sequences{{}, {}, {}}, 8),
              ElementsAre(StepItem{0, 1}, StepItem{1, 1}, StepItem{2, 1}));
}

TEST(PlanStep, DecodesBesideAChunkOfAPrompt) {
  EXPECT_THAT(PlanStep(Sequences{{.prefill_left = 1000}, {}}, 64),
              ElementsAre(StepItem{0, 64}, StepItem{1, 1}));
}

TEST(PlanStep, ServesTheShortestRemainingPromptFirstAndFillsUpWithTheNext) {
  EXPECT_THAT(PlanStep(Sequences{{.prefill_left = 100}, {.prefill_left = 10}}, 64),
              ElementsAre(StepItem{0, 54}, StepItem{1, 10}));
}

TEST(PlanStep, LeavesOutAReaderThatDoesNotKeepUp) {
  EXPECT_THAT(PlanStep(Sequences{{.reader_full = true}, {}}, 64), ElementsAre(StepItem{1, 1}));
  EXPECT_THAT(PlanStep(Sequences{{.reader_full = true}}, 64), IsEmpty());
}

TEST(PlanStep, PrefillsForAReaderThatTookNothingYet) {
  EXPECT_THAT(PlanStep(Sequences{{.prefill_left = 3, .reader_full = true}}, 64), ElementsAre(StepItem{0, 3}));
}

TEST(PlanStep, ALongPromptIsNotOvertakenForEver) {
  // A stream of fresh short prompts against one long prompt that got nothing so far.
  int32_t waited = 0;
  while (PlanStep(Sequences{{.prefill_left = 4000, .steps_waited = waited}, {.prefill_left = 64}}, 64)[0]
             .sequence != 0) {
    ++waited;
    ASSERT_LT(waited, 4000 / kAgeingTokens + 1);
  }
  EXPECT_GT(waited, 0);
}

TEST(PlanStep, NothingToDo) { EXPECT_THAT(PlanStep({}, 64), IsEmpty()); }

}  // namespace
}  // namespace quire::runner::engine
