#include "server/registry/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace quire::server::registry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class AccountsTest : public ::testing::Test {
 protected:
  ~AccountsTest() override { std::filesystem::remove(path_); }
  api::Result<std::map<std::string, std::string>> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadAccounts(path_);
  }
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("quire-accounts-" + std::to_string(::getpid()));
};

TEST_F(AccountsTest, AreReadFromADockerConfiguration) {
  const auto accounts = Read(R"({"auths":{"https://Index.Example/v1/":{"auth":"dXNlcjpwdw=="},
    "localhost:5000":{"auth":"YTpi"},"store":{}},"credsStore":"x"})");
  ASSERT_TRUE(accounts) << accounts.error().message;
  EXPECT_THAT(*accounts, ElementsAre(Pair("index.example", "dXNlcjpwdw=="), Pair("localhost:5000", "YTpi")));
  EXPECT_TRUE(Read("{}")->empty());
}

TEST_F(AccountsTest, SayWhatIsWrong) {
  EXPECT_THAT(Read("no").error().message, HasSubstr("not a JSON object"));
  EXPECT_THAT(Read(R"({"auths":[]})").error().message, HasSubstr("auths"));
  EXPECT_THAT(Read("{\"auths\":{\"x\":{\"auth\":\"a\\r\\nEvil: 1\"}}}").error().message, HasSubstr("base64"));
  EXPECT_THAT(ReadAccounts("/nowhere/at/all").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace quire::server::registry
