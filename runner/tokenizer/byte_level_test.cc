#include "runner/tokenizer/byte_level.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::runner::tokenizer {
namespace {

TEST(ByteLevel, IsABijectionOfAllBytes) {
  std::string entry;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    entry += ByteLevelCharacter(static_cast<uint8_t>(byte));
    bytes.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(FromByteLevel(entry), bytes);
  EXPECT_EQ(ByteLevelCharacter(' '), "\xC4\xA0");
  EXPECT_EQ(FromByteLevel("a b"), std::nullopt);           // a raw space is not of the alphabet
  EXPECT_EQ(FromByteLevel("\xE2\x96\x81"), std::nullopt);  // nor is U+2581
  EXPECT_EQ(FromByteLevel("\xC3"), std::nullopt);
}

}  // namespace
}  // namespace quire::runner::tokenizer
