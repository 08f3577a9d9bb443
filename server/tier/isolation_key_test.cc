#include "server/tier/isolation_key.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

TEST(WithTenant, KeepsTheSalt) {
  EXPECT_EQ(WithTenant("3:abcsalt", "de"), "2:desalt");
  EXPECT_EQ(WithTenant("0:", "de"), "2:de");
  EXPECT_EQ(WithTenant("3:abc", ""), "0:");
  for (const char* wrong : {"", "3", ":abc", "9:abc", "-1:abc", "x:abc"}) {
    EXPECT_FALSE(WithTenant(wrong, "de").has_value()) << wrong;
  }
}

}  // namespace
}  // namespace quire::server
