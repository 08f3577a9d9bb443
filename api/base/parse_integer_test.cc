#include "api/base/parse_integer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace quire::api {
namespace {

TEST(ParseInteger, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(ParseInteger<int32_t>("0"), 0);
  EXPECT_EQ(ParseInteger<int32_t>("-12"), -12);
  EXPECT_EQ(ParseInteger<uint16_t>("65535"), 65535);
  EXPECT_EQ(ParseInteger<int64_t>("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1x", "0x1", "1.0", "1e3", "4294967296"}) {
    EXPECT_EQ(ParseInteger<int32_t>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseInteger<uint16_t>("65536"), std::nullopt);
  EXPECT_EQ(ParseInteger<uint16_t>("-1"), std::nullopt);
}

}  // namespace
}  // namespace quire::api
