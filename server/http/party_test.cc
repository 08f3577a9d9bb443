#include "server/http/party.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

TEST(PartyOf, AKeyIsOnePartyWhereverItComesFrom) {
  EXPECT_EQ(PartyOf("alice", "10.0.0.1:1"), PartyOf("alice", "10.0.0.2:1"));
  EXPECT_NE(PartyOf("alice", "10.0.0.1:1"), PartyOf("bob", "10.0.0.1:1"));
  EXPECT_NE(PartyOf("10.0.0.1", "10.0.0.2:1"), PartyOf("", "10.0.0.1:1"));
}

TEST(PartyOf, WithoutAKeyTheAddressCounts) {
  EXPECT_EQ(PartyOf("", "10.0.0.1:1"), PartyOf("", "10.0.0.1:2"));
  EXPECT_NE(PartyOf("", "10.0.0.1:1"), PartyOf("", "10.0.0.2:1"));
  // A socket for both families shows IPv4 clients as mapped addresses.
  EXPECT_EQ(PartyOf("", "[::ffff:10.0.0.1]:1"), PartyOf("", "10.0.0.1:1"));
  EXPECT_EQ(PartyOf("", "unix:1000").name(), "unix:1000");
  EXPECT_EQ(PartyOf("", "unknown").name(), "unknown");
}

TEST(PartyOf, AnIpv6NetworkIsOneParty) {
  EXPECT_EQ(PartyOf("", "[2001:db8::1]:1"), PartyOf("", "[2001:db8::ff:2]:2"));
  EXPECT_NE(PartyOf("", "[2001:db8::1]:1"), PartyOf("", "[2001:db8:0:1::1]:1"));
}

TEST(IsOfThisMachine, LoopbackAndLocalUsersAre) {
  for (const char* peer :
       {"127.0.0.1:4000", "127.8.8.8:1", "[::1]:4000", "[::ffff:127.0.0.1]:1", "unix:1000"})
    EXPECT_TRUE(IsOfThisMachine(peer)) << peer;
  for (const char* peer : {"172.17.0.2:4000", "[2001:db8::1]:4000", "[::ffff:10.0.0.1]:1", "", "localhost:1"})
    EXPECT_FALSE(IsOfThisMachine(peer)) << peer;
}

}  // namespace
}  // namespace quire::server
