#include "api/base/fair/party.h"

#include <gtest/gtest.h>

#include <optional>

namespace quire::fair {
namespace {

TEST(PartyTable, OneNameIsOneParty) {
  PartyTable table;
  const PartyId alice = table.Intern("alice", 3), bob = table.Intern("bob");
  EXPECT_EQ(table.Intern("alice", 3), alice);
  EXPECT_NE(alice, bob);
  EXPECT_NE(alice.number(), bob.number());
  EXPECT_NE(alice < bob, bob < alice);
  EXPECT_EQ(alice.weight(), 3);
  EXPECT_EQ(alice.name(), "alice");
}

TEST(PartyTable, APartyIsForgottenWithItsLastId) {
  std::optional<PartyTable> table(std::in_place);
  std::optional<PartyId> alice = table->Intern("alice");
  const uint64_t number = alice->number();
  alice.reset();
  EXPECT_EQ(table->size(), 0U);
  const PartyId again = table->Intern("alice");
  EXPECT_NE(again.number(), number);
  table.reset();
  EXPECT_EQ(again.name(), "alice");
}

TEST(PartyId, NobodyHasNoName) {
  EXPECT_EQ(PartyId().number(), 0U);
  EXPECT_EQ(PartyId().weight(), 1);
  EXPECT_EQ(PartyId().name(), "");
}

}  // namespace
}  // namespace quire::fair
