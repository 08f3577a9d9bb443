#include "runner/engine/shares/sampling_share.h"

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
  // `known`: what their tokens take is known before the first.
  void Add(const std::string& party, int streams, Time cost, int32_t weight = 1, bool known = false) {
    const fair::PartyId id = fair::PartyNamed(party, weight);
    for (int i = 0; i < streams; ++i) streams_.push_back({id, cost, known, step_});
  }
  void Remove(const std::string& party) {
    std::erase_if(streams_, [&](const Stream& stream) { return stream.party.name() == party; });
  }
  // Answers of one token, but those of `stays`.
  void RemoveAnswered(const std::string& stays) {
    std::erase_if(streams_,
                  [&](const Stream& stream) { return stream.party.name() != stays && stream.tokens > 0; });
  }
  bool Has(const std::string& party) const {
    return std::ranges::any_of(streams_, [&](const Stream& stream) { return stream.party.name() == party; });
  }
  // What the step's sampling took.
  Time Step() {
    ++step_;
    std::vector<SamplingShare::Sequence> sequences;
    for (size_t i = 0; i < streams_.size(); ++i) {
      const Stream& stream = streams_[i];
      sequences.push_back({.index = i,
                           .party = &stream.party,
                           .samples = true,
                           .cost = stream.known || stream.tokens > 0 ? stream.cost : Time{},
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
    for (const Stream& stream : streams_) tokens += stream.party.name() == party ? stream.tokens : 0;
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
    fair::PartyId party;
    Time cost{};
    bool known = false;
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
  batch.Add("a", 20, 300us, 1, /*known=*/true);
  batch.Add("b", 10, 300us, 1, /*known=*/true);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(batch.Step(), 30 * 300us);
  batch.Add("c", 10, 300us);
  for (int step = 0; step < 10; ++step) EXPECT_GE(batch.Step(), 31 * 300us) << "a token more in each step";
  EXPECT_EQ(batch.Step(), 40 * 300us);
}

// 30 streams that sort a vocabulary of 262,144 tokens: 1.35 s in each step of all others.
TEST(SamplingShare, CostlySamplingOfOneTakesNoMoreThanTheOtherWork) {
  Batch batch;
  batch.Add("innocent", 1, 100us);
  batch.Add("costly", 30, 45ms);
  Time sampling{};
  for (int step = 0; step < 1000; ++step) {
    const Time took = batch.Step();
    EXPECT_LE(took, 100us + 45ms) << "never more than the one token that the party's part begins";
    sampling += took;
  }
  EXPECT_LE(sampling, 1001 * (kCompute + 100us));
  EXPECT_EQ(batch.TokensOf("innocent"), 1000) << "it goes on in every step";
  EXPECT_GE(batch.TokensOf("costly"), 400) << "the others leave it what they do not need";
  EXPECT_LE(batch.LongestWait(), 170U) << "its streams take turns";
}

// Answers of one token behind cached prompts, each sampled in the step that ends its prompt: 465 ms together.
TEST(SamplingShare, FirstTokensTakeNoMoreThanOthers) {
  for (const auto& [hosts, each] : {std::pair(1, 31), {10, 3}, {31, 1}}) {
    for (const bool known : {false, true}) {
      SCOPED_TRACE(testing::Message() << hosts << " x " << each << ", known: " << known);
      Batch batch;
      batch.Add("innocent", 1, 100us);
      batch.Step();
      Time sampling{};
      for (int step = 0; step < 2000; ++step) {
        for (int host = 0; step % 5 == 0 && host < hosts; ++host) {
          const std::string party = std::to_string(host);
          if (!batch.Has(party)) batch.Add(party, each, 15ms, 1, known);
        }
        const Time took = batch.Step();
        batch.RemoveAnswered("innocent");
        EXPECT_LE(took, kCompute + 15ms) << step;
        sampling += took;
      }
      EXPECT_LE(sampling, 2000 * kCompute + hosts * 15ms) << "parties that left in debt have paid it";
      EXPECT_EQ(batch.TokensOf("innocent"), 2001);
    }
  }
}

TEST(SamplingShare, ManyThatLeftHoldNobodyBack) {
  Batch batch;
  batch.Add("a", 1, 4ms, 1, /*known=*/true);
  batch.Add("b", 1, 4ms, 1, /*known=*/true);
  for (int i = 0; i < 1000; ++i) {
    batch.Add(std::to_string(i), 1, 60ms);
    EXPECT_GE(batch.Step(), 8ms) << i;
    batch.Remove(std::to_string(i));
    EXPECT_LE(batch.share.accounts(), 20U);
  }
  const int64_t before = batch.TokensOf("a") + batch.TokensOf("b");
  for (int i = 0; i < 1000; ++i) batch.Step();
  EXPECT_EQ(batch.TokensOf("a") + batch.TokensOf("b"), before + 2000);
}

// What samples nothing in the step waits for nothing, and a party that waits for something else is still
// there.
TEST(SamplingShare, OnlySamplingIsHeldBack) {
  SamplingShare share;
  const fair::PartyId costly = fair::PartyNamed("costly"), other = fair::PartyNamed("other");
  const auto plan = [&](bool waits) {
    std::vector<SamplingShare::Sequence> sequences(4);
    for (size_t i = 0; i < 3; ++i)
      sequences[i] = {.index = i, .party = &costly, .samples = i < 2, .cost = 40ms, .last_sampled = 0};
    sequences[3] = {.index = 3, .party = &other, .samples = false, .waits = waits};
    share.Plan(sequences);
    return sequences;
  };
  for (const bool waits : {false, true}) {
    const auto sequences = plan(waits);
    EXPECT_FALSE(sequences[0].sits_out);
    EXPECT_TRUE(sequences[1].sits_out);
    EXPECT_FALSE(sequences[2].sits_out);
    EXPECT_FALSE(sequences[3].sits_out);
  }
}

TEST(SamplingShare, ThePartsAreByWeight) {
  Batch batch;
  batch.Add("one", 8, 4ms, 1);
  batch.Add("three", 8, 4ms, 3);
  for (int step = 0; step < 20; ++step) batch.Step();
  const int64_t one = batch.TokensOf("one"), three = batch.TokensOf("three");
  for (int step = 0; step < 1000; ++step) EXPECT_LE(batch.Step(), kCompute + 4ms);
  EXPECT_NEAR(
      static_cast<double>(batch.TokensOf("three") - three) / static_cast<double>(batch.TokensOf("one") - one),
      3, 0.1);
}

TEST(SamplingShare, LeavingPaysNothingOff) {
  Batch batch;
  batch.Add("innocent", 1, 100us);
  batch.Step();
  batch.Add("costly", 4, 400ms);
  EXPECT_EQ(batch.Step(), 100us + 400ms);
  batch.Remove("costly");
  batch.Step();
  batch.Add("costly", 4, 400ms);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(batch.Step(), 100us) << step;
  batch.Remove("costly");
  for (int step = 0; step < 100; ++step) batch.Step();
  EXPECT_EQ(batch.share.accounts(), 0U) << "what is paid is forgotten";
}

// Start: its first token comes next, once the token before is paid for.
TEST(SamplingShare, WhoComesBeginsAtOnce) {
  Batch batch;
  batch.Add("innocent", 1, 100us);
  batch.Add("costly", 30, 45ms);
  for (int step = 0; step < 100; ++step) batch.Step();
  for (int i = 0; i < 20; ++i) {
    const std::string party = "new " + std::to_string(i);
    batch.Add(party, 1, 45ms);
    for (int step = 0; step < 4; ++step) batch.Step();
    EXPECT_GT(batch.TokensOf(party), 0);
    batch.Remove(party);
  }
}

TEST(SamplingShare, OfSeveralInDebtOneGoesOn) {
  Batch batch;
  batch.Add("a", 2, 10s);
  batch.Add("b", 2, 5s);
  for (int step = 0; step < 100; ++step) EXPECT_GT(batch.Step(), Time::zero());
  EXPECT_LE(batch.LongestWait(), 8U);
}

// What is sampled where nothing else goes on is no debt: whoever joins would hold all others up until it is
// paid.
TEST(SamplingShare, OneThatJoinsHoldsNobodyUp) {
  Batch batch;
  batch.Add("a", 1, 45ms);
  batch.Add("b", 1, 45ms);
  for (int step = 0; step < 1000; ++step) EXPECT_GT(batch.Step(), Time::zero());
  batch.Add("innocent", 1, 100us);
  const int64_t before = batch.TokensOf("a") + batch.TokensOf("b");
  for (int step = 0; step < 12; ++step) batch.Step();
  EXPECT_GE(batch.TokensOf("a") + batch.TokensOf("b"), before + 3);
}

// Whoever comes and goes and whatever their tokens take: some stream goes on in every step, each that stays
// gets its turn, and nobody's part is passed by more than one token.
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
