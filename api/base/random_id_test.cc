#include "api/base/random_id.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace quire::api {
namespace {

TEST(RandomId, IsThePrefixAndLettersThatNoOtherHas) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = RandomId("req_", 9);
    ASSERT_EQ(id.size(), 13U);
    EXPECT_TRUE(id.starts_with("req_"));
    EXPECT_TRUE(std::ranges::all_of(id.substr(4), [](unsigned char c) { return std::isalnum(c) != 0; }))
        << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

TEST(RandomId, BitsVaryInBothHalves) {
  uint64_t ever = 0;
  uint64_t always = ~uint64_t{0};
  for (int i = 0; i < 64; ++i) {
    const uint64_t bits = RandomBits();
    ever |= bits;
    always &= bits;
  }
  EXPECT_EQ(ever, ~uint64_t{0});
  EXPECT_EQ(always, 0U);
}

}  // namespace
}  // namespace quire::api
