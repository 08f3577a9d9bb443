#include "runner/engine/sampling_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "api/base/testing/simulation_seeds.h"

namespace quire::runner::engine {
namespace {

using namespace std::chrono_literals;
using Time = SamplingShare::Time;

constexpr Time kCompute = 20ms;  // of every step, beside sampling

// Streams of parties whose tokens take what the test says, in steps without a clock.
class Batch {
 public:
  void Add(const std::string& party, int streams, Time cost, double weight = 1) {
    for (int i = 0; i < streams; ++i) streams_.push_back({party, cost, weight});
  }
  void Remove(const std::string& party) {
    std::erase_if(streams_, [&](const Stream& stream) { return stream.party == party; });
  }
  // What the step's sampling took.
  Time Step() {
    ++step_;
    std::vector<SamplingShare::Sequence> sequences;
    for (size_t i = 0; i < streams_.size(); ++i) {
      const Stream& stream = streams_[i];
      sequences.push_back({.index = i,
                           .party = &stream.party,
                           .weight = stream.weight,
                           .decodes = true,
                           .cost = stream.tokens > 0 ? stream.cost : Time{},
                           .last_sampled = stream.last_sampled});
    }
    share.Plan(sequences);
    Time sampling{};
    for (const SamplingShare::Sequence& sequence : sequences) {
      Stream& stream = streams_[sequence.index];
      if (sequence.sits_out) continue;
      stream.longest_wait = std::max(stream.longest_wait, step_ - stream.last_sampled);
      stream.last_sampled = step_;
      ++stream.tokens;
      share.Charge(stream.party, stream.cost);
      sampling += stream.cost;
    }
    share.EndStep(kCompute);
    return sampling;
  }
  int64_t TokensOf(const std::string& party) const {
    int64_t tokens = 0;
    for (const Stream& stream : streams_) tokens += stream.party == party ? stream.tokens : 0;
    return tokens;
  }
  uint64_t LongestWait() const {
    uint64_t longest = 0;
    for (const Stream& stream : streams_)
      longest = std::max({longest, stream.longest_wait, step_ - stream.last_sampled});
    return longest;
  }

  SamplingShare share;

 private:
  struct Stream {
    std::string party;
    Time cost{};
    double weight = 1;
    uint64_t last_sampled = 0;
    uint64_t longest_wait = 0;
    int64_t tokens = 0;
  };
  std::vector<Stream> streams_;
  uint64_t step_ = 0;
};

TEST(SamplingShare, APartyAloneIsNeverHeldBack) {
  Batch batch;
  batch.Add("costly", 30, 45ms);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(batch.Step(), 30 * 45ms);
}

TEST(SamplingShare, WhatIsCheapIsNeverHeldBack) {
  Batch batch;
  batch.Add("a", 20, 300us);
  batch.Add("b", 10, 300us);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(batch.Step(), 30 * 300us);
}

// 30 streams that sort a vocabulary of 262,144 tokens: 1.35 s in each step of all others.
TEST(SamplingShare, CostlySamplingOfOneTakesNoMoreThanTheOtherWork) {
  Batch batch;
  batch.Add("innocent", 1, 100us);
  batch.Add("costly", 30, 45ms);
  const Time first = batch.Step();  // nobody knows yet
  EXPECT_EQ(first, 100us + 30 * 45ms);
  Time sampling{};
  for (int step = 0; step < 1000; ++step) {
    const Time took = batch.Step();
    EXPECT_LE(took, 100us + 45ms) << "never more than the one token that the party's part begins";
    sampling += took;
  }
  EXPECT_LE(sampling, 1001 * (kCompute + 100us));
  EXPECT_EQ(batch.TokensOf("innocent"), 1001) << "it goes on in every step";
  EXPECT_GE(batch.TokensOf("costly"), 30 + 350) << "the others leave it what they do not need";
  EXPECT_LE(batch.LongestWait(), 170U) << "its streams take turns";
}

TEST(SamplingShare, ThePartsAreByWeight) {
  Batch batch;
  batch.Add("one", 8, 4ms, 1);
  batch.Add("three", 8, 4ms, 3);
  batch.Step();
  const int64_t one = batch.TokensOf("one"), three = batch.TokensOf("three");
  for (int step = 0; step < 1000; ++step) EXPECT_LE(batch.Step(), kCompute + 8ms);
  EXPECT_NEAR(
      static_cast<double>(batch.TokensOf("three") - three) / static_cast<double>(batch.TokensOf("one") - one),
      3, 0.1);
}

TEST(SamplingShare, LeavingPaysNothingOff) {
  Batch batch;
  batch.Add("innocent", 1, 100us);
  batch.Add("costly", 4, 100ms);
  batch.Step();
  batch.Remove("costly");
  batch.Step();
  batch.Add("costly", 4, 100ms);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(batch.Step(), 100us) << step;
  batch.Remove("costly");
  for (int step = 0; step < 100; ++step) batch.Step();
  EXPECT_EQ(batch.share.accounts(), 1U) << "what is paid is forgotten";
}

TEST(SamplingShare, OfSeveralInDebtOneGoesOn) {
  Batch batch;
  batch.Add("a", 2, 10s);
  batch.Add("b", 2, 5s);
  for (int step = 0; step < 100; ++step) EXPECT_GT(batch.Step(), Time::zero());
  EXPECT_LE(batch.LongestWait(), 8U);
}

// Whoever comes and goes and whatever their tokens take: some stream goes on in every step, each that stays gets its turn, and
// nobody's part is passed by more than one token.
TEST(SamplingShare, NobodyStarves) {
  api::test::ForEachSimulationSeed(1000, [](uint64_t seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto below = [&random](uint32_t bound) { return static_cast<int>(random() % bound); };
    Batch batch;
    batch.Add("stays", 1, std::chrono::microseconds(1 + below(200)));
    batch.Add("costly", 1 + below(8), std::chrono::microseconds(1 + below(60'000)));
    for (int step = 0; step < 300; ++step) {
      const std::string party(1, static_cast<char>('a' + below(4)));
      if (below(5) == 0) batch.Add(party, 1 + below(4), std::chrono::microseconds(1 + below(60'000)));
      if (below(15) == 0) batch.Remove(party);
      const int64_t before = batch.TokensOf("stays");
      batch.Step();
      EXPECT_EQ(batch.TokensOf("stays"), before + 1) << "it needs less than its part";
    }
    for (int step = 0; step < 3000; ++step) batch.Step();
    EXPECT_LE(batch.LongestWait(), 2000U);
    return !::testing::Test::HasFailure();
  });
}

}  // namespace
}  // namespace quire::runner::engine
