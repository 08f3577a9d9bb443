#include "server/fleet/fleet_node.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

TEST(FleetNodes, AreNamedHostsWithPorts) {
  EXPECT_EQ(ParseFleetNode("a=10.0.0.1:1234")->port, 1234);
  EXPECT_EQ(ParseFleetNode("a=node.example")->port, 11434);
  EXPECT_EQ(ParseFleetNode("a=[::1]:80")->host, "::1");
  EXPECT_FALSE(ParseFleetNode("a=node.example")->tls);
  EXPECT_TRUE(ParseFleetNode("a=https://node.example")->tls);
  EXPECT_EQ(ParseFleetNode("a=https://node.example")->port, 443);
  EXPECT_EQ(ParseFleetNode("a=https://[::1]:11443")->port, 11443);
  for (const char* text : {"", "a", "=b", "a=", "a=b:", "a=b:0", "a=b:70000", "a=b:x", "a=b:1x", "a b=c",
                           "a=http://b", "a=https://", "a=[::1"})
    EXPECT_FALSE(ParseFleetNode(text).has_value()) << text;
  EXPECT_EQ(ParseFleetNodes({"a=b", "a=c"}).error().message, "two nodes are named a");
  EXPECT_FALSE(ParseFleetNodes({}).has_value());
}

}  // namespace
}  // namespace quire::server
