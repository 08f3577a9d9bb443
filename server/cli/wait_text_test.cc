#include "server/cli/wait_text.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(WaitText, SaysHowFarALoadIs) {
  const std::string body =
      R"({"models":[{"name":"a:latest"},{"name":"b:1b","loading":{"progress":0.42,"stage":"quantizing weights"}},)"
      R"({"name":"c:latest","loading":{"progress":0,"stage":""}}]})";
  EXPECT_EQ(WaitText(body, "a"), "waiting for a");
  EXPECT_EQ(WaitText(body, "b:1b"), "loading b:1b (42%, quantizing weights)");
  EXPECT_EQ(WaitText(body, "c"), "loading c (0%)");
  EXPECT_EQ(WaitText(body, "d"), "loading d");
  EXPECT_EQ(WaitText("", "d"), "loading d");
  EXPECT_EQ(WaitText(R"({"models":[7]})", "d"), "loading d");
}

}  // namespace
}  // namespace quire::cli
