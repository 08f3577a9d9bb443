#include "server/store/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>

#include "api/base/sha256.h"
#include "api/base/stop_request.h"
#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::StoreFixture;
using testing::WriteFile;

class StoreFiles : public ::testing::Test {
 protected:
  StoreFiles() { fs::create_directory(fixture_.root()); }

  StoreDirectory Root() const {
    auto root = StoreDirectory::OpenRoot(fixture_.root());
    EXPECT_TRUE(root) << root.error().message;
    return std::move(*root);
  }

  StoreFixture fixture_;
};

TEST_F(StoreFiles, WritesAndReads) {
  const auto directory = Root().Enter("a", true);
  ASSERT_TRUE(directory);
  ASSERT_TRUE(directory->Write("f", "one"));
  ASSERT_TRUE(directory->Write("f", "two"));
  EXPECT_EQ(directory->Read("f", 3), "two");
  EXPECT_EQ(directory->Status("f")->size, 3);
  EXPECT_THAT(directory->Read("f", 2).error().message, HasSubstr("more than the 2 allowed"));
  EXPECT_EQ(directory->Read("g", 3).error().code, api::ErrorCode::kNotFound);
  EXPECT_EQ(fs::status(fixture_.root() / "a").permissions(), fs::perms::owner_all);
}

// For whose result nobody waits any more: nothing is waited for, and nothing of a copy stays.
TEST_F(StoreFiles, LongWorkStops) {
  const std::string bytes(3 << 20, 'x');
  WriteFile(fixture_.root() / "f", bytes);
  const auto held = Root().Lock(".lock");
  ASSERT_TRUE(held);
  std::atomic<bool> stop = false;
  const api::StopScope scope(stop);
  EXPECT_EQ(Root().Digest("f")->size, 3 << 20);
  stop = true;
  EXPECT_EQ(Root().Digest("f").error().system_error, ECANCELED);
  EXPECT_EQ(Root().CopyIn(fixture_.root() / "f").error().system_error, ECANCELED);
  EXPECT_THAT(*Root().ListHidden(), ElementsAre(".lock"));
  EXPECT_EQ(Root().Lock(".lock").error().code, api::ErrorCode::kUnavailable);
}

TEST_F(StoreFiles, ListsEverythingButHiddenNames) {
  WriteFile(fixture_.root() / "b", "");
  WriteFile(fixture_.root() / "a", "");
  WriteFile(fixture_.root() / ".quire-new", "");
  EXPECT_THAT(*Root().List(), ElementsAre("a", "b"));
  EXPECT_THAT(*Root().List(), ElementsAre("a", "b"));
}

TEST_F(StoreFiles, FollowsNoSymlinkBelowTheRoot) {
  const fs::path outside = fixture_.directory() / "outside";
  WriteFile(outside / "secret", "secret");
  fs::create_symlink(outside, fixture_.root() / "directory");
  fs::create_symlink(outside / "secret", fixture_.root() / "file");
  fs::create_symlink(outside / "made", fixture_.root() / ".lock");
  EXPECT_FALSE(Root().Enter("directory"));
  EXPECT_FALSE(Root().Enter("directory", true));
  EXPECT_THAT(Root().Read("file", 100).error().message, HasSubstr("symbolic link"));
  EXPECT_THAT(Root().Status("file").error().message, HasSubstr("symbolic link"));
  EXPECT_FALSE(Root().Lock(".lock"));
  EXPECT_FALSE(Root().Mark(".lock"));
  EXPECT_FALSE(fs::exists(outside / "made"));
  // Writing replaces the link and leaves alone what it points to.
  ASSERT_TRUE(Root().Write("file", "mine"));
  EXPECT_EQ(ReadFile(outside / "secret"), "secret");
  // The temporary's name is no way out either.
  fs::create_symlink(outside / "secret", fixture_.root() / ".quire-new");
  ASSERT_TRUE(Root().Write("other", "mine"));
  EXPECT_EQ(ReadFile(outside / "secret"), "secret");
}

TEST_F(StoreFiles, TheRootItselfMayBeASymlink) {
  fs::create_directory_symlink(fixture_.root(), fixture_.directory() / "link");
  const auto root = StoreDirectory::OpenRoot(fixture_.directory() / "link");
  ASSERT_TRUE(root);
  ASSERT_TRUE(root->Write("f", "x"));
  EXPECT_EQ(ReadFile(fixture_.root() / "f"), "x");
}

TEST_F(StoreFiles, ReadsRegularFilesOnly) {
  ASSERT_EQ(::mkfifo((fixture_.root() / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(Root().Read("fifo", 100));
  EXPECT_FALSE(Root().Status("fifo"));
  EXPECT_EQ(Root().CopyIn(fixture_.root() / "fifo").error().code, api::ErrorCode::kInvalidArgument);
  EXPECT_EQ(Root().CopyIn(fixture_.root()).error().code, api::ErrorCode::kInvalidArgument);
  EXPECT_EQ(Root().CopyIn(fixture_.root() / "absent").error().code, api::ErrorCode::kNotFound);
}

TEST_F(StoreFiles, CopiesAndNamesByDigest) {
  const std::string content(3'000'001, 'q');
  WriteFile(fixture_.directory() / "source", content);
  const auto copied = Root().CopyIn(fixture_.directory() / "source");
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(copied->size, 3'000'001);
  EXPECT_EQ(copied->sha256, api::Sha256Of(content));
  ASSERT_TRUE(Root().Publish("final"));
  EXPECT_EQ(ReadFile(fixture_.root() / "final"), content);
  EXPECT_FALSE(fs::exists(fixture_.root() / ".quire-new"));
}

}  // namespace
}  // namespace quire::server
