#include "api/base/base64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace quire::api {
namespace {

std::string Decoded(std::string text, size_t from = 0) {
  const auto decoded = DecodeBase64(text, from);
  return decoded ? text : "error: " + decoded.error().message;
}

TEST(Base64, ReadsEveryLength) {
  // RFC 4648, section 10.
  const std::vector<std::pair<std::string, std::string>> vectors = {{"", ""},
                                                                    {"Zg==", "f"},
                                                                    {"Zm8=", "fo"},
                                                                    {"Zm9v", "foo"},
                                                                    {"Zm9vYg==", "foob"},
                                                                    {"Zm9vYmE=", "fooba"},
                                                                    {"Zm9vYmFy", "foobar"}};
  for (const auto& [text, bytes] : vectors) {
    EXPECT_EQ(Decoded(text), bytes);
    EXPECT_EQ(Decoded(text.substr(0, text.find('='))), bytes) << "without padding";
    EXPECT_EQ(Decoded("data:image/png;base64," + text, 22), bytes);
    std::string lines;
    for (const char c : text) lines += std::string(1, c) + "\r\n";
    EXPECT_EQ(Decoded(lines), bytes);
  }
}

TEST(Base64, WritesWhatItReads) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    std::string text = "x";
    AppendBase64(text, bytes);
    EXPECT_EQ(text.size(), 1 + (bytes.size() + 2) / 3 * 4);
    EXPECT_EQ(Decoded(text, 1), bytes);
    bytes += static_cast<char>(i * 7);
  }
  std::string text;
  AppendBase64(text, "foobar!");
  EXPECT_EQ(text, "Zm9vYmFyIQ==");
}

TEST(Base64, ReadsBothAlphabets) {
  const std::string bytes("\xfb\xff\xbf\x00\xfe", 5);
  EXPECT_EQ(Decoded("+/+/AP4="), bytes);
  EXPECT_EQ(Decoded("-_-_AP4"), bytes);
}

TEST(Base64, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Zm9*", "is not base64: byte 3 is '*'"},
      {"Zm\xc3\xa9", "is not base64: byte 2 is 0xc3"},
      {std::string("Zm9v\0", 5), "is not base64: byte 4 is 0x00"},
      {"Zg==Zg==", "is not base64: byte 4 is 'Z'"},
      {"Z", "is not base64: a character is missing at its end"},
      {"Zm9vY", "is not base64: a character is missing at its end"},
      {"Zg=", "is not base64: its padding does not fit its length"},
      {"Zm9v=", "is not base64: its padding does not fit its length"},
      {"====", "is not base64: its padding does not fit its length"}};
  for (const auto& [text, message] : cases) EXPECT_EQ(Decoded(text), "error: " + message) << text;
}

}  // namespace
}  // namespace quire::api
