#include "api/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::api {
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
  EXPECT_EQ(CodePointAt(text, 0).value, U'a');
  EXPECT_EQ(CodePointAt(text, 1).value, U'\u00E9');
  EXPECT_EQ(CodePointAt(text, 3).value, U'\u20AC');
  EXPECT_EQ(CodePointAt(text, 6).value, U'\U0001F600');
  EXPECT_EQ(CountCodePoints(text), 4U);
  EXPECT_EQ(CodePointBefore(text, 10).bytes, 4U);
  EXPECT_EQ(CodePointBefore(text, 6).bytes, 3U);
  EXPECT_EQ(CodePointBefore(text, 1).bytes, 1U);
}

TEST(Utf8, EncodesWhatItDecodes) {
  std::string text;
  for (const char32_t value :
       {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xD7FFU, 0xE000U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    const size_t at = text.size();
    EXPECT_TRUE(AppendUtf8(text, value));
    EXPECT_EQ(CodePointAt(text, at).value, value);
    EXPECT_EQ(CodePointAt(text, at).bytes, text.size() - at);
  }
  EXPECT_TRUE(IsValidUtf8(text));
  const std::string before = text;
  for (const char32_t value : {0xD800U, 0xDFFFU, 0x110000U}) EXPECT_FALSE(AppendUtf8(text, value));
  EXPECT_EQ(text, before);
}

TEST(Utf8, SaysWhatACutCharacterIs) {
  EXPECT_EQ(CodePointAt("a\xF0\x9F", 1).kind, CodePoint::Kind::kIncomplete);
  EXPECT_EQ(CodePointAt("a\xF0\x9F", 1).bytes, 2U);
  EXPECT_EQ(CodePointAt("\xF0\x9Fz").kind, CodePoint::Kind::kInvalid);
  EXPECT_EQ(CodePointAt("\xF0\x9Fz").value, char32_t{0xFFFD});
}

}  // namespace
}  // namespace quire::api
