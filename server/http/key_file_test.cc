#include "server/http/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "api/base/file_descriptor.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kDigest = "sha256:" + std::string(64, 'a');

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() : folder_(fs::temp_directory_path() / fmt::format("key-file-{}", ::getpid())) {
    fs::create_directory(folder_);
  }
  ~KeyFile() override { fs::remove_all(folder_); }

  void Write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  std::string Text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // No copy of the file is left over.
  size_t Files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  const fs::path folder_;
  const fs::path path_ = folder_ / "keys";
};

TEST_F(KeyFile, AKeyIsAddedToAFileWhoseLastLineLacksItsEnd) {
  Write("# ours\na admin " + kDigest);
  const auto added = AddKey(path_, "b", Role::kInference, {.weight = 2});
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(added->keys.size(), 2U);
  ASSERT_NE(added->keys.Find(added->secret), nullptr);
  EXPECT_EQ(added->keys.Find(added->secret)->limits.weight, 2);
  const auto again = AddKey(path_, "b", Role::kInference, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().field, "name");
  EXPECT_FALSE(AddKey(path_, "two words", Role::kInference, {}));
  EXPECT_EQ(KeyRing::Read(path_)->size(), 2U);
  fs::remove(path_);
  EXPECT_FALSE(AddKey(path_, "b", Role::kInference, {}));
}

TEST_F(KeyFile, OneKeyIsRemovedAndAllElseStays) {
  Write("# bob left\n\n bob inference " + kDigest + " parallel=2\r\nbobby admin " + kDigest + "\n# end",
        0640);
  const auto left = RemoveKey(path_, "bob");
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(left->size(), 1U);
  EXPECT_TRUE(left->Names("bobby"));
  EXPECT_EQ(Text(), "# bob left\n\nbobby admin " + kDigest + "\n# end");
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
  EXPECT_EQ(Files(), 1U);
}

TEST_F(KeyFile, TheLastLineIsRemovedWithoutItsEnd) {
  Write("a admin " + kDigest + "\nb inference " + kDigest);
  ASSERT_TRUE(RemoveKey(path_, "b"));
  EXPECT_EQ(Text(), "a admin " + kDigest + "\n");
}

TEST_F(KeyFile, NeitherTheOnlyKeyNorAnUnknownOneIsRemoved) {
  const std::string text = "a admin " + kDigest + "\n";
  Write(text);
  const auto only = RemoveKey(path_, "a");
  ASSERT_FALSE(only);
  EXPECT_EQ(only.error().code, api::ErrorCode::kForbidden);
  const auto unknown = RemoveKey(path_, "#");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, api::ErrorCode::kNotFound);
  EXPECT_EQ(Text(), text);
  Write("nonsense\n" + text);
  EXPECT_FALSE(RemoveKey(path_, "a"));
  fs::remove(path_);
  EXPECT_FALSE(RemoveKey(path_, "a"));
  EXPECT_EQ(Files(), 0U);
}

TEST_F(KeyFile, ALinkToItStays) {
  Write("a admin " + kDigest + "\nb inference " + kDigest + "\n");
  const fs::path link = folder_ / "link";
  fs::create_symlink(path_, link);
  ASSERT_TRUE(RemoveKey(link, "b"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(Text(), "a admin " + kDigest + "\n");
}

TEST_F(KeyFile, NobodyElseChangesItMeanwhile) {
  const std::string text = "a admin " + kDigest + "\nb inference " + kDigest + "\n";
  Write(text);
  const api::FileDescriptor other(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const auto removed = RemoveKey(path_, "b");
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(removed.error().message, HasSubstr("another process"));
  EXPECT_EQ(Text(), text);
}

}  // namespace
}  // namespace quire::server
