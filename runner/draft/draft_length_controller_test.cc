#include "runner/draft/draft_length_controller.h"

#include <gtest/gtest.h>

#include <random>

namespace quire::runner::draft {
namespace {

using std::chrono::microseconds;

// A machine whose steps take `base` plus `row` for every row, and drafts with one acceptance rate.
struct World {
  double base = 10'000, row = 500;  // microseconds
  double acceptance = 0.8;
  double draft = 0;        // microseconds per draft token
  double hidden_cost = 0;  // microseconds of a step with drafts that only ObserveOutcome() sees
  Source source = Source::kPromptLookup;
  int32_t sequences = 1;

  struct Result {
    double tokens = 0, seconds = 0;
    double rate() const { return tokens / seconds; }
    int32_t longest = 0;
  };
  // Runs `steps` steps; the first quarter is not counted.
  Result Run(DraftLengthController& control, int32_t steps) const {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> draw(0, 1);
    std::vector<AcceptanceStats> all_stats(static_cast<size_t>(sequences));
    Result result;
    for (int32_t step = 0; step < steps; ++step) {
      std::vector<Candidate> rounds;
      for (AcceptanceStats& stats : all_stats)
        rounds.push_back({.source = source, .first_kind = 3, .max_length = 15, .stats = &stats});
      control.Plan(rounds, sequences, /*limit=*/240);
      int32_t rows = sequences, drafted = 0;
      double tokens = sequences;
      for (const Candidate& round : rounds) {
        int32_t accepted = 0;
        while (accepted < round.length && draw(random) < acceptance) ++accepted;
        control.ObserveRound(round, round.length, accepted);
        rows += round.length;
        drafted += round.length;
        tokens += accepted;
      }
      const double took = base + row * rows;
      const double all = took + draft * drafted + (drafted > 0 ? hidden_cost : 0);
      control.ObserveStep(rows, microseconds(static_cast<int64_t>(took)));
      control.ObserveOutcome(static_cast<int32_t>(tokens), microseconds(static_cast<int64_t>(all)));
      if (draft > 0) control.ObserveDraft(drafted, microseconds(static_cast<int64_t>(draft * drafted)));
      if (step < steps / 4) continue;
      result.tokens += tokens;
      result.seconds += all / 1e6;
      for (const Candidate& round : rounds) result.longest = std::max(result.longest, round.length);
    }
    return result;
  }
  double RateWithout() const { return sequences / ((base + row * sequences) / 1e6); }
  // With this draft length in every round.
  double RateAt(int32_t draft_length) const {
    double tokens = 1, reached = 1;
    for (int32_t i = 0; i < draft_length; ++i) tokens += reached *= acceptance;
    return sequences * tokens /
           ((base + sequences * (row * (1 + draft_length) + draft * draft_length)) / 1e6);
  }
  double BestRate() const {
    double best = 0;
    for (int32_t length = 0; length <= 15; ++length) best = std::max(best, RateAt(length));
    return best;
  }
};

TEST(DraftLengthController, ComesCloseToTheBestLength) {
  for (const double acceptance : {0.3, 0.5, 0.7, 0.9, 0.97}) {
    for (const double row : {100.0, 1'000.0, 4'000.0}) {
      for (const int32_t sequences : {1, 4, 16}) {
        for (const double draft : {0.0, 800.0}) {
          const World world{.row = row,
                            .acceptance = acceptance,
                            .draft = draft,
                            .source = draft > 0 ? Source::kModel : Source::kPromptLookup,
                            .sequences = sequences};
          DraftLengthController control;
          EXPECT_GE(world.Run(control, 3000).rate(), 0.84 * world.BestRate())
              << "acceptance " << acceptance << ", row " << row << ", " << sequences << " sequences, draft "
              << draft;
        }
      }
    }
  }
}

TEST(DraftLengthController, CostsNothingWhereDraftsAreRejected) {
  for (const double acceptance : {0.0, 0.05}) {
    for (const int32_t sequences : {1, 16}) {
      const World world{.row = 1'500, .acceptance = acceptance, .sequences = sequences};
      DraftLengthController control;
      EXPECT_GE(world.Run(control, 3000).rate(), 0.98 * world.RateWithout());
    }
  }
}

TEST(DraftLengthController, LearnsTheCostOfDraftingOutsideTheSteps) {
  for (const double hidden_cost : {4'000.0, 20'000.0}) {
    const World world{.row = 300, .acceptance = 0.4, .hidden_cost = hidden_cost};
    DraftLengthController control;
    EXPECT_GE(world.Run(control, 4000).rate(), 0.96 * world.RateWithout()) << hidden_cost;
  }
}

TEST(DraftLengthController, ResumesWhenDraftsAreAcceptedAgain) {
  DraftLengthController control;
  World world{.row = 300, .acceptance = 0};
  world.Run(control, 2000);
  world.acceptance = 0.9;
  const auto after = world.Run(control, 2000);
  EXPECT_GE(after.rate(), 0.9 * world.BestRate());
}

TEST(DraftLengthController, DraftsLessWhereMoreSequencesShareAStep) {
  World world{.base = 10'000, .row = 600, .acceptance = 0.8};
  DraftLengthController few, many;
  const auto alone = world.Run(few, 2000);
  world.sequences = 24;
  const auto crowd = world.Run(many, 2000);
  EXPECT_GT(alone.longest, 4);
  EXPECT_GE(crowd.rate(), 0.98 * world.RateWithout());
}

TEST(DraftLengthController, EverySequenceHasItsOwnOdds) {
  DraftLengthController control;
  AcceptanceStats accepting, rejecting;
  for (int i = 0; i < 200; ++i) {
    for (AcceptanceStats* stats : {&accepting, &rejecting}) {
      control.ObserveRound(
          {.source = Source::kPromptLookup, .first_kind = 4, .max_length = 4, .stats = stats, .length = 4}, 4,
          stats == &accepting ? 4 : 0);
    }
  }
  EXPECT_GT(control.AcceptanceRate(Source::kPromptLookup, 4, accepting), 0.7);
  EXPECT_LT(control.AcceptanceRate(Source::kPromptLookup, 4, rejecting), 0.3);
}

TEST(DraftLengthController, DraftsNoMoreThanTheLimit) {
  DraftLengthController control;
  std::vector<AcceptanceStats> all_stats(8);
  control.ObserveStep(8, microseconds(1000));
  for (const int32_t limit : {0, 1, 5, 30}) {
    int32_t drafted = 0;
    for (int step = 0; step < 40; ++step) {
      std::vector<Candidate> rounds;
      for (AcceptanceStats& stats : all_stats)
        rounds.push_back(
            {.source = Source::kPromptLookup, .first_kind = 16, .max_length = 15, .stats = &stats});
      control.Plan(rounds, 8, limit);
      int32_t all = 0;
      for (const Candidate& round : rounds) all += round.length;
      EXPECT_LE(all, limit);
      drafted = std::max(drafted, all);
    }
    EXPECT_EQ(drafted > 0, limit > 0);
  }
}

TEST(DraftLengthController, KnowsNothingBeforeTheFirstStep) {
  DraftLengthController control;
  AcceptanceStats stats;
  Candidate round{.source = Source::kPromptLookup, .first_kind = 16, .max_length = 15, .stats = &stats};
  control.Plan({&round, 1}, 1, /*limit=*/31);
  EXPECT_EQ(round.length, 0);
}

}  // namespace
}  // namespace quire::runner::draft
