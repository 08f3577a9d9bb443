#include "runner/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "runner/tokenizer/byte_level.h"

namespace quire::runner::tokenizer {
namespace {

const std::string kBad = std::string(kReplacementCharacter);

// Unicode 15, table 3-8 and the cases around it.
TEST(Utf8, ReplacesEachMaximalSubpart) {
  EXPECT_EQ(ReplaceInvalidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), kBad + kBad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE0\x80\x80"), kBad + kBad + kBad);             // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), kBad + kBad + kBad);             // surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), kBad + kBad + kBad + kBad);  // above U+10FFFF
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"), kBad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

TEST(Utf8, StreamDoesNotDependOnHowBytesArrive) {
  const std::string text =
      "a\xF1\x80\x80\xE1\x80\xC2"
      "b\x80 \xF0\x9F\x98\x80 \xE2\x82\xAC\xED\xA0\x80 0123456789\xC3\xA9\xF0\x9F";
  const std::string whole = ReplaceInvalidUtf8(text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    for (size_t second = cut; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out;
      for (const std::string& part :
           {text.substr(0, cut), text.substr(cut, second - cut), text.substr(second)}) {
        const std::string emitted = stream.Append(part);
        EXPECT_TRUE(IsValidUtf8(emitted));
        out += emitted;
      }
      EXPECT_EQ(out + stream.Flush(), whole);
      EXPECT_EQ(stream.Flush(), "");
    }
  }
}

TEST(Utf8, ValidityIsThatOfEveryCharacter) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("0123456789abcdef\xC3\xA9 and more ASCII after it"));
  EXPECT_FALSE(IsValidUtf8("0123456789abcdef\xC3"));
  EXPECT_FALSE(IsValidUtf8("0123456789abcdef\x80 0123456789abcdef"));
}

TEST(Utf8, WalksCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(CodePointAt(text, 0), U'a');
  EXPECT_EQ(CodePointAt(text, 1), U'\u00E9');
  EXPECT_EQ(CodePointAt(text, 3), U'\u20AC');
  EXPECT_EQ(CodePointAt(text, 6), U'\U0001F600');
  EXPECT_EQ(PreviousCharacter(text, 10), 6U);
  EXPECT_EQ(PreviousCharacter(text, 6), 3U);
  EXPECT_EQ(PreviousCharacter(text, 1), 0U);
}

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
