#include "api/base/fair/quota.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "api/base/testing/simulation_seeds.h"

namespace quire::fair {
namespace {

constexpr uint64_t kTotal = 1000;

// Keeps its total and names nobody: who came first keeps what it has.
class UnfairQuota : public Quota {
 public:
  using Quota::Quota;
  class Lease : public Quota::Lease {
   public:
    using Quota::Lease::Lease;
    std::optional<Refusal> GrowTo(uint64_t amount) {
      auto refusal = Quota::Lease::GrowTo(amount);
      if (refusal) refusal->over = {};
      return refusal;
    }
  };
};

// Bound: whoever is refused would have more than its share, once those that are named gave back. They have
// more than theirs. What is wrong, or nothing.
template <class AnyQuota>
std::string RunQuota(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t bound) {
    return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random);
  };
  PartyTable table;
  AnyQuota quota(QuotaLimits{.total = kTotal});
  std::vector<PartyId> parties;
  constexpr std::array<int32_t, 5> kWeights = {1, 1, 2, 3, 8};
  for (uint64_t i = 0, count = 2 + below(7); i < count; ++i)
    parties.push_back(table.Intern(fmt::format("p{}", i), kWeights[below(kWeights.size())]));
  std::vector<typename AnyQuota::Lease> leases;
  const auto share_of = [&](const PartyId& party, const PartyId& asks) {
    double weights = quota.HoldingOf(asks) == 0 ? asks.weight() : 0;
    for (const PartyId& one : parties) weights += quota.HoldingOf(one) > 0 ? one.weight() : 0;
    return static_cast<double>(kTotal) * party.weight() / weights;
  };
  for (int step = 0; step < 300; ++step) {
    if (below(5) == 0 && !leases.empty())
      leases.erase(leases.begin() + static_cast<int64_t>(below(leases.size())));
    const PartyId party = parties[below(parties.size())];
    typename AnyQuota::Lease lease(quota, party);
    const uint64_t amount = 1 + below(below(4) == 0 ? 600 : 60);
    while (const auto refusal = lease.GrowTo(amount)) {
      if (refusal->over == PartyId()) {
        const auto would_have = static_cast<double>(quota.HoldingOf(party) + amount);
        if (would_have <= share_of(party, party))
          return fmt::format("{} was refused its share", party.name());
        break;
      }
      if (static_cast<double>(quota.HoldingOf(refusal->over)) <= share_of(refusal->over, party) - 1e-9 ||
          refusal->over == party) {
        return fmt::format("{} is to give back its share", refusal->over.name());
      }
      const auto last = std::ranges::find(leases, refusal->over, &Quota::Lease::party);
      leases.erase(last);
    }
    if (lease.amount() > 0) leases.push_back(std::move(lease));
    uint64_t sum = 0;
    for (const auto& one : leases) sum += one.amount();
    if (sum != quota.held() || sum > kTotal)
      return fmt::format("{} are held, {} are counted", sum, quota.held());
  }
  return {};
}

TEST(QuotaSimulation, WhoHasMoreThanItsShareGivesBackFirst) {
  api::test::ForEachSimulationSeed(1000, [](uint64_t seed) {
    const std::string wrong = RunQuota<Quota>(seed);
    EXPECT_EQ(wrong, "") << "seed " << seed;
    return wrong.empty();
  });
}

TEST(QuotaSimulation, FindsAnUnfairQuota) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) wrong += RunQuota<UnfairQuota>(seed).empty() ? 0 : 1;
  EXPECT_GT(wrong, 10);
}

// A quota of what cannot be taken back, as the memory of requests' bodies.
class QuotaWithRoom : public ::testing::Test {
 protected:
  struct Lease : Quota::Lease {
    using Quota::Lease::Lease;
    // "" when it has grown.
    std::string To(uint64_t amount) {
      const auto refusal = GrowTo(amount);
      if (!refusal) return "";
      return refusal->bound == Quota::Bound::kParty ? "party" : "all";
    }
  };
  Lease Of(const char* party) { return {quota_, table_.Intern(party)}; }

  static constexpr QuotaLimits kLimits{
      .total = 1000, .small = 10, .large = 750, .party = 500, .leaves_room = true};
  PartyTable table_;
  Quota quota_{kLimits};
};

TEST_F(QuotaWithRoom, OnePartysLargeLeasesLeaveRoomForOthers) {
  Lease first = Of("alice"), second = Of("alice"), third = Of("alice"), other = Of("bob");
  EXPECT_EQ(first.To(400), "");
  EXPECT_EQ(second.To(100), "");
  EXPECT_EQ(second.To(101), "party");
  EXPECT_EQ(second.To(50), "") << "it is as it was";
  EXPECT_TRUE(third.RefusalFor(11));
  EXPECT_EQ(third.To(10), "") << "small leases have their own room";
  EXPECT_EQ(other.To(166), "");
  EXPECT_EQ(other.To(167), "all");
  EXPECT_EQ(quota_.held(), 676U);
}

TEST_F(QuotaWithRoom, SeveralPartiesLeaveTheNextOneRoom) {
  std::vector<Lease> leases;
  uint64_t left = kLimits.large;
  for (const char* party : {"alice", "bob", "carol"}) {
    leases.push_back(Of(party));
    const uint64_t share = std::min(left * 2 / 3, kLimits.party);
    EXPECT_EQ(leases.back().To(share), "") << party;
    EXPECT_NE(leases.back().To(share + 1), "") << party;
    EXPECT_EQ(Of(party).To(11), "party") << party;
    left -= share;
  }
  EXPECT_EQ(left, 28U);
  EXPECT_EQ(Of("dave").To(18), "");
}

TEST_F(QuotaWithRoom, OneOfTheLargestSizeFitsBesideLittle) {
  Lease other = Of("bob"), large = Of("alice");
  EXPECT_EQ(other.To(46), "");
  quota_.SetLimits({.total = 1000, .small = 10, .large = 750, .party = 750, .leaves_room = true});
  EXPECT_EQ(large.To(704), "");
}

TEST_F(QuotaWithRoom, SmallLeasesTakeNothingFromLargeOnes) {
  std::vector<Lease> small;
  for (int i = 0; i < 25; ++i) {
    small.push_back(Of("alice"));
    EXPECT_EQ(small.back().To(10), "");
  }
  Lease large = Of("alice"), other = Of("bob"), late = Of("carol");
  EXPECT_EQ(large.To(500), "");
  EXPECT_EQ(other.To(166), "");
  EXPECT_EQ(quota_.held(), 916U);
  for (int i = 0; i < 8; ++i) {
    small.push_back(Of("carol"));
    EXPECT_EQ(small.back().To(10), "");
  }
  EXPECT_EQ(late.To(5), "all");
}

TEST_F(QuotaWithRoom, ALeaseGivesBackWhatItNeedsNoMore) {
  Lease lease = Of("alice"), second = Of("alice");
  EXPECT_EQ(lease.To(400), "");
  lease.ShrinkTo(450);
  EXPECT_EQ(quota_.held(), 400U);
  lease.ShrinkTo(100);
  EXPECT_EQ(quota_.held(), 100U);
  EXPECT_EQ(second.To(400), "");
  lease.ShrinkTo(5);
  EXPECT_EQ(second.To(500), "") << "what is small is not the party's share";
}

TEST_F(QuotaWithRoom, WhatLeasesHeldIsGivenBack) {
  {
    Lease small = Of("alice");
    EXPECT_EQ(small.To(5), "");
    EXPECT_EQ(small.To(300), "");
    Quota::Lease moved = std::move(small);
    EXPECT_EQ(quota_.held(), 300U);
  }
  EXPECT_EQ(quota_.held(), 0U);
  EXPECT_EQ(Of("alice").To(500), "");
  EXPECT_EQ(table_.size(), 0U) << "nobody holds a party";
}

// What was there before anybody knew how much it is counts against what the party asks for later.
TEST_F(QuotaWithRoom, WhatIsHeldAnywayCounts) {
  Quota::Lease lease(quota_, table_.Intern("alice"));
  lease.SetTo(2000);
  EXPECT_EQ(quota_.held(), 2000U);
  EXPECT_TRUE(lease.RefusalFor(2001));
  lease.ShrinkTo(0);
  EXPECT_EQ(Of("bob").To(500), "");
}

// A lease that was large stays so when what is small changes, and is counted as it was.
TEST_F(QuotaWithRoom, LimitsMayChangeUnderLeases) {
  {
    Lease lease = Of("alice");
    EXPECT_EQ(lease.To(20), "");
    quota_.SetLimits({.total = 1000, .small = 100, .large = 750, .party = 500, .leaves_room = true});
  }
  EXPECT_EQ(Of("alice").To(500), "");
  EXPECT_EQ(Of("bob").To(250), "");
}

}  // namespace
}  // namespace quire::fair
