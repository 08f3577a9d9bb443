#include "api/json/image_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace quire::api {
namespace {

using ::testing::HasSubstr;

TEST(ReadImage, TakesBase64AndDataUrls) {
  for (const std::string text :
       {"aGk=", "aGk", "a\nGk=\n",
        "data:image/png;base64,aGk=", "data:;base64,aGk=", "DATA:IMAGE/JPEG;BASE64,aGk",
        "data:image/png;name=a.png;base64,aGk=", "data:application/octet-stream;base64,aGk="}) {
    const auto file = ReadImage(text, "url");
    ASSERT_TRUE(file) << text << ": " << file.error().message;
    EXPECT_EQ(**file, "hi") << text;
  }
}

TEST(ReadImage, RefusesTheRestByName) {
  struct Case {
    std::string text, message;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  const std::vector<Case> cases = {
      {"https://a.example/b.png", "url: https URLs are not fetched; send the image as a data URL",
       ErrorCode::kUnsupported},
      {"HTTP://a", "url: http URLs are not fetched; send the image as a data URL", ErrorCode::kUnsupported},
      {"file:///etc/passwd", "url: file URLs are not fetched; send the image as a data URL",
       ErrorCode::kUnsupported},
      {"data:image/png,hi", "field \"url\" must have base64: data:image/png;base64,..."},
      {"data:image/png;base64", "field \"url\" must have base64: data:image/png;base64,..."},
      {"data:" + std::string(1000, 'x') + ";base64,aGk=",
       "field \"url\" must have base64: data:image/png;base64,..."},
      {"data:image/png;base64,a%", "field \"url\" is not base64: byte 1 is '%'"},
      {"data:image/png;base64,", "field \"url\" is empty"},
      {"", "field \"url\" is empty"},
      {"/tmp/a.png", "field \"url\" is not base64: byte 6 is '.'"}};
  for (const Case& one : cases) {
    const auto file = ReadImage(one.text, "url");
    ASSERT_FALSE(file) << one.text;
    EXPECT_EQ(file.error().message, one.message);
    EXPECT_EQ(file.error().code, one.code) << one.text;
    EXPECT_EQ(file.error().field, "url");
  }
}

TEST(ReadImageField, NamesTheMember) {
  FirstError error;
  const Json object = {{"url", "!"}, {"data", 5}};
  Fields fields(object, "messages[0]", error);
  for (const char* name : {"url", "data", "absent"}) {
    const auto file = ReadImageField(fields, name);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().field, std::string("messages[0].") + name);
    EXPECT_THAT(file.error().message, HasSubstr(file.error().field));
  }
  EXPECT_FALSE(error) << "the caller decides";
}

}  // namespace
}  // namespace quire::api
