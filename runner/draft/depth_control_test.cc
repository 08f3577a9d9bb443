#include "runner/draft/depth_control.h"

#include <gtest/gtest.h>

#include <random>

namespace quire::runner::draft {
namespace {

using std::chrono::microseconds;

// A machine whose steps take `base` plus `row` for every row, and guesses that are right with one chance.
struct World {
  double base = 10'000, row = 500;  // microseconds
  double chance = 0.8;
  double draft = 0;   // microseconds a guessed token
  double untold = 0;  // microseconds of a step with guesses that only its outcome shows
  Source source = Source::kText;
  int32_t sequences = 1;

  struct Result {
    double tokens = 0, seconds = 0;
    double rate() const { return tokens / seconds; }
    int32_t deepest = 0;
  };
  // Runs so many steps, the first ones not counted.
  Result Run(DepthControl& control, int32_t steps) const {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> draw(0, 1);
    std::vector<Track> tracks(static_cast<size_t>(sequences));
    Result result;
    for (int32_t step = 0; step < steps; ++step) {
      std::vector<Candidate> rounds;
      for (Track& track : tracks)
        rounds.push_back({.source = source, .first_kind = 3, .most = 15, .track = &track});
      control.Plan(rounds, sequences, /*most=*/240);
      int32_t rows = sequences, drafted = 0;
      double tokens = sequences;
      for (const Candidate& round : rounds) {
        int32_t accepted = 0;
        while (accepted < round.depth && draw(random) < chance) ++accepted;
        control.ObserveRound(round, round.depth, accepted);
        rows += round.depth;
        drafted += round.depth;
        tokens += accepted;
      }
      const double took = base + row * rows;
      const double all = took + draft * drafted + (drafted > 0 ? untold : 0);
      control.ObserveStep(rows, microseconds(static_cast<int64_t>(took)));
      control.ObserveOutcome(static_cast<int32_t>(tokens), microseconds(static_cast<int64_t>(all)));
      if (draft > 0) control.ObserveDraft(drafted, microseconds(static_cast<int64_t>(draft * drafted)));
      if (step < steps / 4) continue;
      result.tokens += tokens;
      result.seconds += all / 1e6;
      for (const Candidate& round : rounds) result.deepest = std::max(result.deepest, round.depth);
    }
    return result;
  }
  double RateWithout() const { return sequences / ((base + row * sequences) / 1e6); }
  // With every round so deep.
  double RateAt(int32_t depth) const {
    double tokens = 1, reached = 1;
    for (int32_t i = 0; i < depth; ++i) tokens += reached *= chance;
    return sequences * tokens / ((base + sequences * (row * (1 + depth) + draft * depth)) / 1e6);
  }
  double BestRate() const {
    double best = 0;
    for (int32_t depth = 0; depth <= 15; ++depth) best = std::max(best, RateAt(depth));
    return best;
  }
};

TEST(DepthControl, ComesCloseToTheBestDepth) {
  for (const double chance : {0.3, 0.5, 0.7, 0.9, 0.97}) {
    for (const double row : {100.0, 1'000.0, 4'000.0}) {
      for (const int32_t sequences : {1, 4, 16}) {
        for (const double draft : {0.0, 800.0}) {
          const World world{.row = row,
                            .chance = chance,
                            .draft = draft,
                            .source = draft > 0 ? Source::kModel : Source::kText,
                            .sequences = sequences};
          DepthControl control;
          EXPECT_GE(world.Run(control, 3000).rate(), 0.84 * world.BestRate())
              << "chance " << chance << ", row " << row << ", " << sequences << " sequences, draft " << draft;
        }
      }
    }
  }
}

TEST(DepthControl, CostsNothingWhereGuessesFail) {
  for (const double chance : {0.0, 0.05}) {
    for (const int32_t sequences : {1, 16}) {
      const World world{.row = 1'500, .chance = chance, .sequences = sequences};
      DepthControl control;
      EXPECT_GE(world.Run(control, 3000).rate(), 0.98 * world.RateWithout());
    }
  }
}

TEST(DepthControl, LearnsWhatGuessingCostsBesideTheSteps) {
  for (const double untold : {4'000.0, 20'000.0}) {
    const World world{.row = 300, .chance = 0.4, .untold = untold};
    DepthControl control;
    EXPECT_GE(world.Run(control, 4000).rate(), 0.96 * world.RateWithout()) << untold;
  }
}

TEST(DepthControl, ComesBackWhenGuessesBeginToBeRight) {
  DepthControl control;
  World world{.row = 300, .chance = 0};
  world.Run(control, 2000);
  world.chance = 0.9;
  const auto after = world.Run(control, 2000);
  EXPECT_GE(after.rate(), 0.9 * world.BestRate());
}

TEST(DepthControl, GuessesLessWhereMoreSequencesShareAStep) {
  World world{.base = 10'000, .row = 600, .chance = 0.8};
  DepthControl few, many;
  const auto alone = world.Run(few, 2000);
  world.sequences = 24;
  const auto crowd = world.Run(many, 2000);
  EXPECT_GT(alone.deepest, 4);
  EXPECT_GE(crowd.rate(), 0.98 * world.RateWithout());
}

TEST(DepthControl, EverySequenceHasItsOwnLuck) {
  DepthControl control;
  Track lucky, luckless;
  for (int i = 0; i < 200; ++i) {
    for (Track* track : {&lucky, &luckless}) {
      control.ObserveRound({.source = Source::kText, .first_kind = 4, .most = 4, .track = track, .depth = 4},
                           4, track == &lucky ? 4 : 0);
    }
  }
  EXPECT_GT(control.Chance(Source::kText, 4, lucky), 0.7);
  EXPECT_LT(control.Chance(Source::kText, 4, luckless), 0.3);
}

TEST(DepthControl, GuessesNoMoreThanThereIsRoomFor) {
  DepthControl control;
  std::vector<Track> tracks(8);
  control.ObserveStep(8, microseconds(1000));
  for (const int32_t most : {0, 1, 5, 30}) {
    int32_t guessed = 0;
    for (int step = 0; step < 40; ++step) {
      std::vector<Candidate> rounds;
      for (Track& track : tracks)
        rounds.push_back({.source = Source::kText, .first_kind = 16, .most = 15, .track = &track});
      control.Plan(rounds, 8, most);
      int32_t all = 0;
      for (const Candidate& round : rounds) all += round.depth;
      EXPECT_LE(all, most);
      guessed = std::max(guessed, all);
    }
    EXPECT_EQ(guessed > 0, most > 0);
  }
}

TEST(DepthControl, KnowsNothingBeforeTheFirstStep) {
  DepthControl control;
  Track track;
  Candidate round{.source = Source::kText, .first_kind = 16, .most = 15, .track = &track};
  control.Plan({&round, 1}, 1, /*most=*/31);
  EXPECT_EQ(round.depth, 0);
}

}  // namespace
}  // namespace quire::runner::draft
