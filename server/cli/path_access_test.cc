#include "server/cli/path_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

class PathAccess : public ::testing::Test {
 protected:
  PathAccess() {
    std::string name = fs::temp_directory_path() / "quire-path-XXXXXX";
    root_ = fs::canonical(::mkdtemp(name.data()));
    fs::create_directories(root_ / "a/b");
    std::ofstream(root_ / "a/b/file") << "x";
    Mode("", 0755);
    Mode("a", 0755);
    Mode("a/b", 0755);
    Mode("a/b/file", 0644);
  }
  ~PathAccess() override {
    for (const char* path : {"", "a", "a/b"}) Mode(path, 0755);
    fs::remove_all(root_);
  }
  void Mode(const char* path, mode_t mode) const { ::chmod((root_ / path).c_str(), mode); }
  std::string At(const char* path) const { return (root_ / path).string(); }

  fs::path root_;
  // Nobody that has an account; neither owner nor in the group of what a test makes.
  const Person stranger_{"stranger", 65000, {65000}};
  const Person owner_{"owner", ::geteuid() == 0 ? uid_t{64999} : ::geteuid(), {64999}};
};

TEST_F(PathAccess, AnOpenWayHasNoObstacle) {
  EXPECT_EQ(Obstacle(root_ / "a/b/file", stranger_, Need::kRead), std::nullopt);
  EXPECT_EQ(Obstacle(root_ / "a/b", stranger_, Need::kRead), std::nullopt);
}

TEST_F(PathAccess, NamesTheComponentTheUserAndTheBit) {
  Mode("a", 0744);
  EXPECT_THAT(Obstacle(root_ / "a/b/file", stranger_, Need::kRead),
              Optional(AllOf(HasSubstr(At("a") + " (drwxr--r--"), HasSubstr("stranger cannot enter"),
                             HasSubstr("x is missing for others"))));
  Mode("a", 0755);
  Mode("a/b/file", 0640);
  EXPECT_THAT(
      Obstacle(root_ / "a/b/file", stranger_, Need::kRead),
      Optional(AllOf(HasSubstr(At("a/b/file")), HasSubstr("cannot read"), HasSubstr("r is missing"))));
  Mode("a/b", 0751);
  EXPECT_THAT(Obstacle(root_ / "a/b", stranger_, Need::kRead),
              Optional(AllOf(HasSubstr("cannot list"), HasSubstr("r is missing"))));
  Mode("a/b", 0755);
  EXPECT_THAT(Obstacle(root_ / "a/b", stranger_, Need::kWrite),
              Optional(AllOf(HasSubstr("cannot make files in"), HasSubstr("w is missing"))));
}

TEST_F(PathAccess, TheFirstClassThatAppliesCountsAlone) {
  struct stat status {};
  ASSERT_EQ(::stat(root_.c_str(), &status), 0);
  const Person member{"member", 65000, {status.st_gid}};
  Mode("a/b", 0705);  // others may, its group may not
  EXPECT_THAT(Obstacle(root_ / "a/b", member, Need::kRead), Optional(HasSubstr("missing for its group")));
  const Person holder{"holder", status.st_uid == 0 ? uid_t{65000} : status.st_uid, {65000}};
  if (status.st_uid != 0) {
    Mode("a/b", 0077);
    EXPECT_THAT(Obstacle(root_ / "a/b", holder, Need::kRead), Optional(HasSubstr("missing for its owner")));
  }
}

TEST_F(PathAccess, FollowsLinksAndTellsOfWhatIsNotThere) {
  fs::create_symlink(root_ / "a/b", root_ / "link");
  Mode("a", 0700);
  EXPECT_THAT(Obstacle(root_ / "link/file", stranger_, Need::kRead), Optional(HasSubstr(At("a") + " (")));
  Mode("a", 0755);
  EXPECT_THAT(Obstacle(root_ / "none/file", owner_, Need::kRead),
              Optional(HasSubstr(At("none") + ": No such file")));
  EXPECT_THAT(Obstacle(root_ / "a/b/file/deeper", owner_, Need::kRead),
              Optional(HasSubstr("Not a directory")));
}

TEST_F(PathAccess, RootPassesEverywhere) {
  Mode("a", 0);
  if (::geteuid() == 0) {
    EXPECT_EQ(Obstacle(root_ / "a/b/file", {"root", 0, {0}}, Need::kWrite), std::nullopt);
  }
}

TEST(Person, KnowsTheUsersOfTheMachine) {
  EXPECT_EQ(FindPerson("no-such-user-here"), std::nullopt);
  const auto root = FindPerson("root");
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->uid, 0u);
  const auto self = FindPerson("");
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->uid, ::geteuid());
}

}  // namespace
}  // namespace quire::server
