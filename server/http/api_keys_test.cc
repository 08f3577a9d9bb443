#include "server/http/api_keys.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// "printf %s secret | sha256sum"
constexpr std::string_view kSecretDigest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

TEST(KeyRing, ReadsNamesRolesAndLimits) {
  const auto ring =
      KeyRing::Parse(fmt::format("# who may\n\n  alice admin sha256:{0}\r\nbob\tinference sha256:{1} "
                                 "weight=3 parallel=2 per_minute=60\n",
                                 kSecretDigest, std::string(64, 'a')));
  ASSERT_TRUE(ring.has_value()) << ring.error().message;
  EXPECT_EQ(ring->size(), 2u);
  EXPECT_TRUE(ring->Names("bob"));
  const ApiKey* alice = ring->Find("secret");
  ASSERT_NE(alice, nullptr);
  EXPECT_EQ(alice->name, "alice");
  EXPECT_EQ(alice->role, Role::kAdmin);
  EXPECT_EQ(ring->Find("Secret"), nullptr);
  EXPECT_EQ(ring->Find(""), nullptr);
  EXPECT_EQ(ring->Find(std::string("sha256:") + std::string(kSecretDigest)), nullptr);
}

TEST(KeyRing, ABadLineIsNamedAndNotRepeated) {
  const std::string good = "sha256:" + std::string(kSecretDigest);
  for (const std::string& line : std::initializer_list<std::string>{
           std::string("alice"),
           std::string("alice root ") + good,
           std::string("alice admin swordfish"),
           "alice admin sha256:swordfish",
           "alice admin " + good + "0",
           "al/ice admin " + good,
           "alice admin " + good + " weight=0",
           "alice admin " + good + " weight=x",
           "alice admin " + good + " weight=1x",
           "alice admin " + good + " speed=3",
           "alice admin " + good + " swordfish",
           "ok admin " + good + "\nok inference " + good,
       }) {
    const auto ring = KeyRing::Parse("# first\n" + line);
    ASSERT_FALSE(ring.has_value()) << line;
    EXPECT_THAT(ring.error().message, HasSubstr("line ")) << line;
    EXPECT_THAT(ring.error().message, Not(HasSubstr("swordfish"))) << line;
    EXPECT_THAT(ring.error().message, Not(HasSubstr(std::string(kSecretDigest)))) << line;
  }
}

TEST(KeyRing, MadeKeysAreFoundAndNeverTheSame) {
  const auto one = MakeKey("ci", Role::kInference, {.weight = 2, .parallel = 4, .per_minute = 9});
  const auto other = MakeKey("ops", Role::kAdmin, {});
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->secret, other->secret);
  EXPECT_GE(one->secret.size(), 64u);
  EXPECT_THAT(one->line, Not(HasSubstr(one->secret)));
  const auto ring = KeyRing::Parse(one->line + "\n" + other->line);
  ASSERT_TRUE(ring.has_value()) << ring.error().message;
  const ApiKey* key = ring->Find(one->secret);
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(key->name, "ci");
  EXPECT_EQ(key->role, Role::kInference);
  EXPECT_EQ(key->limits.weight, 2);
  EXPECT_EQ(key->limits.parallel, 4);
  EXPECT_EQ(key->limits.per_minute, 9);
  EXPECT_FALSE(MakeKey("two words", Role::kAdmin, {}).has_value());
}

TEST(KeyRing, RefusesAFileThatOthersMayWrite) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("keys-{}", ::getpid());
  std::ofstream(path) << "a admin sha256:" << kSecretDigest << "\n";
  ::chmod(path.c_str(), 0640);
  EXPECT_TRUE(KeyRing::Read(path).has_value());
  for (const mode_t mode : {0660U, 0602U}) {
    ::chmod(path.c_str(), mode);
    const auto ring = KeyRing::Read(path);
    ASSERT_FALSE(ring.has_value()) << mode;
    EXPECT_THAT(ring.error().message, HasSubstr(path.string()));
  }
  std::filesystem::remove(path);
  EXPECT_FALSE(KeyRing::Read(path).has_value());
  EXPECT_FALSE(KeyRing::Read(std::filesystem::temp_directory_path()).has_value());
}

}  // namespace
}  // namespace quire::server
