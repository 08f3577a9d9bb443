#include "runner/engine/shares/fair_share.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::runner::engine {
namespace {

TEST(FairShare, CountsTokensByWeight) {
  FairShare shares;
  shares.Enter("a", 1);
  shares.Enter("b", 4);
  shares.Charge("a", 100);
  shares.Charge("b", 100);
  EXPECT_EQ(shares.Of("a").virtual_time, 100);
  EXPECT_EQ(shares.Of("b").virtual_time, 25);
}

TEST(FairShare, SilenceEarnsNoCredit) {
  FairShare shares;
  shares.Enter("busy", 1);
  shares.Charge("busy", 1000);
  shares.Enter("late", 1);
  EXPECT_EQ(shares.Of("late").virtual_time, 1000);
}

// Its virtual time stands still: whoever starts there would be ahead of all others until it has computed as
// much as they have.
TEST(FairShare, APartyThatCannotGoOnHoldsNobodyBack) {
  const std::string stalled = "stalled", honest = "honest", late = "late";
  FairShare shares;
  shares.Enter(stalled, 1);
  shares.Enter(honest, 1);
  shares.Update(std::vector<FairShare::Request>{{&stalled, true}, {&honest, true}});
  shares.Charge(stalled, 100);
  shares.Update(std::vector<FairShare::Request>{{&stalled, false}, {&honest, true}});
  shares.Charge(honest, 2'000'000);
  shares.Enter(late, 1);
  EXPECT_EQ(shares.Of(late).virtual_time, 2'000'000);
  EXPECT_EQ(shares.Of(stalled).virtual_time, 100);
  shares.Update(std::vector<FairShare::Request>{{&stalled, false}, {&stalled, true}, {&honest, true}});
  EXPECT_EQ(shares.Of(stalled).virtual_time, 2'000'000) << "it was idle";
}

TEST(FairShare, LeavingAndComingBackPaysNothingOff) {
  FairShare shares;
  shares.Enter("greedy", 1);
  shares.Enter("other", 1);
  shares.Charge("greedy", 500);
  shares.Exit("greedy");
  shares.Enter("greedy", 1);
  EXPECT_EQ(shares.Of("greedy").virtual_time, 500);
  EXPECT_EQ(shares.Of("other").virtual_time, 0);
}

TEST(FairShare, ForgetsPartiesThatHaveNothingLeft) {
  FairShare shares;
  shares.Enter("stays", 1);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = std::to_string(i);
    shares.Enter(name, 1);
    shares.Charge(name, 10);
    shares.Charge("stays", 20);
    shares.Exit(name);
  }
  EXPECT_LT(shares.parties(), 4U);
  shares.Exit("stays");
  EXPECT_EQ(shares.parties(), 0U);
}

}  // namespace
}  // namespace quire::runner::engine
