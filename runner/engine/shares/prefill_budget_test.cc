#include "runner/engine/shares/prefill_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace quire::runner::engine {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A machine whose steps take exactly what they take.
struct Machine {
  double base_ms = 2;
  double row_ms = 1;   // per decoding sequence
  double cost_ms = 1;  // per prompt token

  nanoseconds Time(int32_t decoding, int32_t prefill) const {
    return duration_cast<nanoseconds>(
        duration<double, std::milli>(base_ms + row_ms * decoding + cost_ms * prefill));
  }
};

// Runs a prompt of `tokens` beside `decoding` streams; returns the longest step.
nanoseconds Longest(PrefillBudget& budget, const Machine& machine, int32_t decoding, int32_t tokens) {
  nanoseconds longest{};
  while (tokens > 0) {
    const int32_t chunk = std::min(tokens, budget.Tokens(decoding));
    const nanoseconds took = machine.Time(decoding, chunk);
    budget.Observe(decoding, chunk, took);
    longest = std::max(longest, took);
    tokens -= chunk;
  }
  return longest;
}

TEST(PrefillBudget, KeepsTheGapOfRunningStreams) {
  for (const double cost_ms : {0.05, 0.3, 2.0}) {
    const Machine machine{.cost_ms = cost_ms};
    PrefillBudget budget;
    for (int i = 0; i < 10; ++i) budget.Observe(4, 0, machine.Time(4, 0));
    EXPECT_LE(Longest(budget, machine, 4, 4000), milliseconds(150)) << cost_ms;
    // And does not waste what it may take: a step without a prompt takes 6 ms, a twentieth of 120.
    EXPECT_GT(budget.Tokens(4), std::min(0.55 * 114 / cost_ms, 511.0)) << cost_ms;
  }
}

// A stream of a small model beside another's prompt: the fewer milliseconds between its tokens, the better,
// as long as the prompt loses little.
TEST(PrefillBudget, StepsAreShortWhereDecodingCostsLittle) {
  for (const double idle_ms : {0.5, 2.0, 5.0, 7.0}) {
    const Machine machine{.base_ms = idle_ms, .row_ms = 0, .cost_ms = 0.3};
    PrefillBudget budget;
    for (int i = 0; i < 10; ++i) budget.Observe(1, 0, machine.Time(1, 0));
    const nanoseconds longest = Longest(budget, machine, 1, 4000);
    const duration<double, std::milli> limit(std::max(50.0, 20 * idle_ms));
    EXPECT_LE(longest, limit) << idle_ms;
    EXPECT_GT(longest, 11 * machine.Time(1, 0)) << idle_ms << ": the streams take too much of the time";
  }
}

TEST(PrefillBudget, StepsMayTakeAllOfTheGapWhereDecodingCostsMuch) {
  for (const double idle_ms : {7.5, 20.0, 60.0}) {
    const Machine machine{.base_ms = idle_ms, .row_ms = 0, .cost_ms = 0.3};
    PrefillBudget budget;
    for (int i = 0; i < 10; ++i) budget.Observe(1, 0, machine.Time(1, 0));
    Longest(budget, machine, 1, 4000);
    EXPECT_NEAR(budget.Tokens(1), 0.6 * (150 - idle_ms) / machine.cost_ms, 2) << idle_ms;
  }
}

TEST(PrefillBudget, AllowsTwiceAnIdleGapThatIsLongItself) {
  const Machine machine{.base_ms = 200};
  PrefillBudget budget;
  for (int i = 0; i < 10; ++i) budget.Observe(4, 0, machine.Time(4, 0));
  EXPECT_LE(Longest(budget, machine, 4, 4000), 2 * machine.Time(4, 0));
  EXPECT_GT(budget.Tokens(4), 50);
}

TEST(PrefillBudget, FollowsTokensThatGrowDearer) {
  PrefillBudget budget;
  Machine machine{.cost_ms = 0.2};
  for (int i = 0; i < 10; ++i) budget.Observe(2, 0, machine.Time(2, 0));
  for (int i = 0; i < 200; ++i) {
    machine.cost_ms *= 1.02;  // attention over a longer and longer prompt
    EXPECT_LE(Longest(budget, machine, 2, budget.Tokens(2)), milliseconds(150));
  }
}

TEST(PrefillBudget, IsAtLeastOneTokenOnAnyMachine) {
  PrefillBudget budget;
  budget.Observe(1, 0, std::chrono::seconds(10));
  budget.Observe(1, 32, std::chrono::seconds(400));
  EXPECT_EQ(budget.Tokens(1), 1);
}

TEST(PrefillBudget, AloneAPromptMayTakeAStepOfItsOwn) {
  const Machine machine{.cost_ms = 1};
  PrefillBudget budget;
  EXPECT_LE(Longest(budget, machine, 0, 2000), milliseconds(200));
  EXPECT_GT(budget.Tokens(0), 100);
}

// A machine that reads the weights while it multiplies them: few tokens take as long as one. Reading takes
// most of what a step alone may take, as with some 4 GB of weights at 30 GB/s.
double SecondsOfPrompt(PrefillBudget& budget, int32_t tokens) {
  double sum = 0;
  while (tokens > 0) {
    const int32_t chunk = std::min(tokens, budget.Tokens(0));
    const double took = std::max(0.126, 0.0105 * chunk);
    budget.Observe(0, chunk, duration_cast<nanoseconds>(duration<double>(took)));
    sum += took;
    tokens -= chunk;
  }
  return sum;
}

TEST(PrefillBudget, AloneAPromptOfALargeModelIsNotComputedTokenByToken) {
  PrefillBudget before_decoding;
  PrefillBudget budget;
  for (int i = 0; i < 10; ++i) budget.Observe(1, 0, milliseconds(126));
  for (const int32_t tokens :
       {250, 1, 56, 2, 56, 1, 1, 56, 600}) {  // the short ones are what a cache leaves of a prompt
    const double longest = std::max(0.2, 1.6 * 0.0105 * tokens);
    EXPECT_LE(SecondsOfPrompt(before_decoding, tokens), longest) << tokens;
    EXPECT_LE(SecondsOfPrompt(budget, tokens), longest) << tokens;
  }
  EXPECT_LE(budget.Tokens(0) * 0.0105, 0.5);
}

// The first step lays experts out, or other work had the machine: what it measured holds no longer.
TEST(PrefillBudget, AloneASlowFirstStepIsForgotten) {
  for (const int first_ms : {1'500, 4'000, 20'000}) {
    PrefillBudget budget;
    budget.Observe(0, 32, milliseconds(first_ms));
    SecondsOfPrompt(budget, 100);
    EXPECT_LE(SecondsOfPrompt(budget, 600), 1.6 * 0.0105 * 600) << first_ms;
  }
}

// A mixture of experts: eight of 128 for each token, so that a few tokens read most of the weights.
TEST(PrefillBudget, AloneAPromptReadsEachExpertForManyTokens) {
  PrefillBudget budget;
  const auto took = [](int32_t tokens) {
    return std::max(0.05 + 0.5 * (1 - std::pow(0.9375, tokens)), 0.007 * tokens);
  };
  for (int i = 0; i < 10; ++i) budget.Observe(1, 0, duration_cast<nanoseconds>(duration<double>(took(1))));
  double sum = 0, longest = 0;
  for (int prompt = 0; prompt < 4; ++prompt) {
    int32_t left = 800;
    while (left > 0) {
      const int32_t chunk = std::min(left, budget.Tokens(0));
      budget.Observe(0, chunk, duration_cast<nanoseconds>(duration<double>(took(chunk))));
      sum += took(chunk);
      longest = std::max(longest, took(chunk));
      left -= chunk;
    }
  }
  EXPECT_LE(sum, 1.5 * 0.007 * 3200);  // steps of two tokens, which take 111 ms: 177 s
  EXPECT_LE(longest, 1.0);
}

}  // namespace
}  // namespace quire::runner::engine
