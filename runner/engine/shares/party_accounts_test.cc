#include "runner/engine/shares/party_accounts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::runner::engine {
namespace {

using Parties = std::vector<fair::PartyId>;
const auto kAll = [](const fair::PartyId&) { return true; };

const fair::PartyId kOne = fair::PartyNamed("one"), kFour = fair::PartyNamed("four", 4);

TEST(PartyAccounts, CountsCostsByWeight) {
  PartyAccounts accounts(100);
  accounts.SetActive(Parties{kOne, kFour, kOne});
  accounts.Charge(kOne, 100);
  accounts.Charge(kFour, 100);
  EXPECT_EQ(accounts.TimeOf(kOne), 100);
  EXPECT_EQ(accounts.TimeOf(kFour), 25);
  EXPECT_EQ(*accounts.Next(kAll), kFour);
  EXPECT_EQ(*accounts.Next([](const fair::PartyId& party) { return party == kOne; }), kOne);
  accounts.Charge(kOne, -100);
  EXPECT_EQ(accounts.TimeOf(kOne), 0);
}

TEST(PartyAccounts, SilenceEarnsNoCredit) {
  PartyAccounts accounts(100);
  accounts.SetActive(Parties{kOne});
  accounts.Charge(kOne, 1000);
  EXPECT_EQ(accounts.TimeOf(kFour), 999);
  accounts.SetActive(Parties{kOne, kFour});
  EXPECT_EQ(accounts.TimeOf(kFour), 999) << "it begins";
  accounts.Charge(kFour, 4);
  EXPECT_EQ(accounts.TimeOf(kFour), 1001);
}

// Whoever came at the average would wait for all that a party behind it is owed.
TEST(PartyAccounts, WhoBeginsIsInFrontOfAllUntilItWasCharged) {
  const fair::PartyId behind = fair::PartyNamed("behind"), late = fair::PartyNamed("late");
  PartyAccounts accounts(100);
  accounts.SetActive(Parties{behind, kOne});
  accounts.Charge(behind, 10);
  accounts.Charge(kOne, 1000);
  accounts.SetActive(Parties{behind, kOne, late});
  EXPECT_LT(accounts.TimeOf(late), accounts.TimeOf(behind));
  accounts.Charge(late, 10);
  EXPECT_GT(accounts.TimeOf(late), accounts.TimeOf(behind));
  EXPECT_LT(accounts.TimeOf(late), accounts.TimeOf(kOne));
}

// Its time stands still: whoever starts there would be ahead of all others until it has had as much as they.
TEST(PartyAccounts, APartyThatCannotGoOnHoldsNobodyBack) {
  const fair::PartyId stalled = fair::PartyNamed("stalled"), late = fair::PartyNamed("late");
  PartyAccounts accounts(100);
  accounts.SetActive(Parties{stalled, kOne});
  accounts.SetActive(Parties{kOne});
  accounts.Charge(kOne, 2'000'000);
  accounts.SetActive(Parties{kOne, late});
  EXPECT_EQ(accounts.TimeOf(late), 1'999'999);
  accounts.SetActive(Parties{kOne, late, stalled});
  accounts.Charge(stalled, 1);
  EXPECT_EQ(accounts.TimeOf(stalled), 2'000'001) << "it was idle";
}

TEST(PartyAccounts, LeavingAndComingBackPaysNothingOff) {
  PartyAccounts accounts(100);
  accounts.SetActive(Parties{kOne, kFour});
  accounts.Charge(kOne, 500);
  accounts.SetActive(Parties{kFour});
  accounts.SetActive(Parties{kFour});
  EXPECT_EQ(accounts.TimeOf(kOne), 500);
  accounts.SetActive(Parties{kFour, kOne});
  EXPECT_EQ(accounts.TimeOf(kOne), 500);
  EXPECT_EQ(accounts.TimeOf(kFour), 0);
}

TEST(PartyAccounts, ForgetsPartiesThatOweNothing) {
  PartyAccounts accounts(100);
  for (int i = 0; i < 1000; ++i) {
    const fair::PartyId party = fair::PartyNamed(std::to_string(i));
    accounts.SetActive(Parties{kOne, party});
    accounts.Charge(party, 10);
    accounts.Charge(kOne, 20);
    accounts.SetActive(Parties{kOne});
    EXPECT_LT(accounts.size(), 4U);
  }
  accounts.SetActive({});
  EXPECT_EQ(accounts.size(), 0U);
}

}  // namespace
}  // namespace quire::runner::engine
