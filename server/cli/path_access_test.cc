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
  const UserAccount stranger_{"stranger", 65000, {65000}};
  const UserAccount owner_{"owner", ::geteuid() == 0 ? uid_t{64999} : ::geteuid(), {64999}};
};

TEST_F(PathAccess, AnAccessiblePathHasNoError) {
  EXPECT_EQ(FindAccessError(root_ / "a/b/file", stranger_, AccessMode::kRead), std::nullopt);
  EXPECT_EQ(FindAccessError(root_ / "a/b", stranger_, AccessMode::kRead), std::nullopt);
}

TEST_F(PathAccess, NamesTheComponentTheUserAndThePermission) {
  Mode("a", 0744);
  EXPECT_THAT(FindAccessError(root_ / "a/b/file", stranger_, AccessMode::kRead),
              Optional(AllOf(HasSubstr(At("a") + " (drwxr--r--"), HasSubstr("stranger cannot enter"),
                             HasSubstr("no x permission for others"))));
  Mode("a", 0755);
  Mode("a/b/file", 0640);
  EXPECT_THAT(
      FindAccessError(root_ / "a/b/file", stranger_, AccessMode::kRead),
      Optional(AllOf(HasSubstr(At("a/b/file")), HasSubstr("cannot read"), HasSubstr("no r permission"))));
  Mode("a/b", 0751);
  EXPECT_THAT(FindAccessError(root_ / "a/b", stranger_, AccessMode::kRead),
              Optional(AllOf(HasSubstr("cannot list"), HasSubstr("no r permission"))));
  Mode("a/b", 0755);
  EXPECT_THAT(FindAccessError(root_ / "a/b", stranger_, AccessMode::kWrite),
              Optional(AllOf(HasSubstr("cannot create files in"), HasSubstr("no w permission"))));
}

TEST_F(PathAccess, TheFirstClassThatAppliesCountsAlone) {
  struct stat status {};
  ASSERT_EQ(::stat(root_.c_str(), &status), 0);
  const UserAccount member{"member", 65000, {status.st_gid}};
  Mode("a/b", 0705);  // others may, its group may not
  EXPECT_THAT(FindAccessError(root_ / "a/b", member, AccessMode::kRead),
              Optional(HasSubstr("permission for its group")));
  const UserAccount holder{"holder", status.st_uid == 0 ? uid_t{65000} : status.st_uid, {65000}};
  if (status.st_uid != 0) {
    Mode("a/b", 0077);
    EXPECT_THAT(FindAccessError(root_ / "a/b", holder, AccessMode::kRead),
                Optional(HasSubstr("permission for its owner")));
  }
}

TEST_F(PathAccess, FollowsLinksAndTellsOfWhatIsNotThere) {
  fs::create_symlink(root_ / "a/b", root_ / "link");
  Mode("a", 0700);
  EXPECT_THAT(FindAccessError(root_ / "link/file", stranger_, AccessMode::kRead),
              Optional(HasSubstr(At("a") + " (")));
  Mode("a", 0755);
  EXPECT_THAT(FindAccessError(root_ / "none/file", owner_, AccessMode::kRead),
              Optional(HasSubstr(At("none") + ": No such file")));
  EXPECT_THAT(FindAccessError(root_ / "a/b/file/deeper", owner_, AccessMode::kRead),
              Optional(HasSubstr("Not a directory")));
}

TEST_F(PathAccess, RootPassesEverywhere) {
  Mode("a", 0);
  if (::geteuid() == 0) {
    EXPECT_EQ(FindAccessError(root_ / "a/b/file", {"root", 0, {0}}, AccessMode::kWrite), std::nullopt);
  }
}

TEST(UserAccount, KnowsTheUsersOfTheMachine) {
  EXPECT_EQ(FindUserAccount("no-such-user-here"), std::nullopt);
  const auto root = FindUserAccount("root");
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->uid, 0u);
  const auto self = FindUserAccount("");
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->uid, ::geteuid());
}

}  // namespace
}  // namespace quire::server
