#include "api/base/image_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/base/testing/shown_images.h"

namespace quire::api {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const std::string> File(const char* bytes) {
  return std::make_shared<const std::string>(bytes);
}

Message Pictures() {
  Message message{"user", "one\ntwo"};
  message.images = {{0, File("a")}, {4, nullptr}, {4, File("b")}, {7, File("c")}};
  return message;
}

TEST(ImageUse, AModelThatSeesKeepsThemWhereTheyStand) {
  std::vector<Message> messages = {Pictures(), {"assistant", "yes"}};
  ASSERT_TRUE(SettleImages({.any = true}, true, messages));
  EXPECT_EQ(WithImages(messages[0]), "{a}one\n[image omitted: it was not sent as base64]\n{b}two{c}");
  EXPECT_EQ(WithImages(messages[1]), "yes");
}

TEST(ImageUse, AModelThatTakesTextOnlyGetsLines) {
  std::vector<Message> messages = {Pictures()};
  ASSERT_TRUE(SettleImages({.any = true}, false, messages));
  const std::string line = "[image omitted: this model takes text only]\n";
  EXPECT_EQ(messages[0].content, line + "one\n" + line + line + "two\n" + line);
  EXPECT_TRUE(messages[0].images.empty());
}

TEST(ImageUse, EachModelHasItsRefusal) {
  const ImageUse use{.any = true,
                     .text_only = Error{ErrorCode::kUnsupported, "text only", "a"},
                     .unreadable = Error{ErrorCode::kInvalidArgument, "no base64", "b"}};
  std::vector<Message> messages = {Pictures()};
  EXPECT_EQ(SettleImages(use, true, messages).error().field, "b");
  EXPECT_EQ(SettleImages(use, false, messages).error().field, "a");
  EXPECT_TRUE(SettleImages({.any = true, .text_only = use.text_only}, true, messages));
}

TEST(ImageUse, TextAddedToAMessageMovesItsImages) {
  Message message{"user", "see"};
  message.images = {{0, File("a")}, {3, File("b")}};
  PrependText(message, "Now, ");
  EXPECT_EQ(WithImages(message), "Now, {a}see{b}");
  AppendContent(message, "\n\n", Message(message));
  EXPECT_EQ(WithImages(message), "Now, {a}see{b}\n\nNow, {a}see{b}");
  Message bare{"user", ""};
  bare.images = {{0, File("c")}};
  AppendContent(message, "\n\n", bare);
  EXPECT_EQ(WithImages(message), "Now, {a}see{b}\n\nNow, {a}see{b}{c}");
}

}  // namespace
}  // namespace quire::api
