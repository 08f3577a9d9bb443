#include "server/routes/slot_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace quire::server {
namespace {

namespace fs = std::filesystem;

class SlotFileTest : public ::testing::Test {
 protected:
  SlotFileTest() {
    std::string pattern = (fs::temp_directory_path() / "quire-slots-XXXXXX").string();
    folder_ = fs::path(::mkdtemp(pattern.data())) / "slots";
  }
  ~SlotFileTest() override { fs::remove_all(folder_.parent_path()); }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(folder_)) files.push_back(file.path());
    return files;
  }
  // What `work` gives under a limit of this process.
  template <class Work>
  static auto WithLimit(decltype(RLIMIT_NOFILE) what, rlim_t limit, Work work) {
    struct rlimit before {};
    EXPECT_EQ(::getrlimit(what, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit now { limit, before.rlim_max };
    EXPECT_EQ(::setrlimit(what, &now), 0);
    auto result = work();
    EXPECT_EQ(::setrlimit(what, &before), 0);
    std::signal(SIGXFSZ, handler);
    return result;
  }
  fs::path folder_;
};

const SlotOwner kOwner{"alice", "digest"};

TEST_F(SlotFileTest, ASnapshotSurvives) {
  ASSERT_TRUE(SlotFiles(folder_).Write(kOwner, "a.bin", {{1, 2, 3}, "salt", 512}).has_value());
  const auto read = SlotFiles(folder_).Read(kOwner, "a.bin").value();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tokens, (std::vector<api::TokenId>{1, 2, 3}));
  EXPECT_EQ(read->cache_salt, "salt");
  EXPECT_EQ(read->num_ctx, 512);
  EXPECT_FALSE(SlotFiles(folder_).Read({"bob", "digest"}, "a.bin").value().has_value());
  EXPECT_FALSE(SlotFiles(folder_).Read({"alice", "other"}, "a.bin").value().has_value());
  EXPECT_FALSE(SlotFiles(folder_).Read(kOwner, "b.bin").value().has_value());
  ASSERT_TRUE(SlotFiles(folder_).Write(kOwner, "a.bin", {{4}, "", 0}).has_value());
  EXPECT_EQ(SlotFiles(folder_).Read(kOwner, "a.bin").value()->tokens, (std::vector<api::TokenId>{4}));
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(SlotFileTest, FilesArePrivate) {
  ASSERT_TRUE(SlotFiles(folder_).Write(kOwner, "../../a", {{1}, "", 0}).has_value());
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(Files().size(), 1u) << "a name is no path";
  ASSERT_EQ(::stat(Files()[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(SlotFileTest, WhatIsNotOursStaysAsItIs) {
  fs::create_directory(folder_);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  for (const char* name : {"new-1-1", "new-plan", "notes.quire-slot"})
    std::ofstream(folder_ / name) << "theirs";
  std::ofstream(folder_ / "new-0123456789abcdef.quire-part") << "of a process that was killed";
  ASSERT_TRUE(SlotFiles(folder_, 1000, 0).Write(kOwner, "a", {{1}, "", 0}).has_value());
  EXPECT_EQ(Files().size(), 4u);
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0755u);
  for (const fs::path& folder : {folder_, folder_.parent_path()}) {
    ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
    const auto refused = SlotFiles(folder_).Write(kOwner, "b", {{1}, "", 0});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, api::ErrorCode::kUnavailable);
    ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  }
}

TEST_F(SlotFileTest, DamageIsNoSnapshot) {
  const SlotFiles files(folder_);
  ASSERT_TRUE(files.Write(kOwner, "a", {{1, 2, 3}, "salt", 512}).has_value());
  const fs::path path = Files()[0];
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t bit = 0; bit < whole.size() * 8; bit += 13) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    EXPECT_FALSE(files.Read(kOwner, "a").value().has_value()) << bit;
    EXPECT_FALSE(fs::exists(path)) << bit;
  }
  for (size_t size = 0; size < whole.size(); size += 7) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_FALSE(files.Read(kOwner, "a").value().has_value()) << size;
  }
}

TEST_F(SlotFileTest, TheTenantWithMostMakesRoom) {
  const SlotFiles files(folder_, 16'000, 0);
  const SlotPrefix prefix{std::vector<api::TokenId>(500, 7), "", 0};  // 2 KB, a block of 4 KiB
  ASSERT_TRUE(files.Write({"bob", "m"}, "only", prefix).has_value());
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    ASSERT_TRUE(files.Write(kOwner, name, prefix).has_value());
  }
  EXPECT_TRUE(files.Read({"bob", "m"}, "only").value().has_value());
  EXPECT_TRUE(files.Read(kOwner, "f").value().has_value());
  EXPECT_EQ(Files().size(), 4u);
  const auto large = files.Write(kOwner, "x", {std::vector<api::TokenId>(5000, 7), "", 0});
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, api::ErrorCode::kTooLarge);
}

// No descriptor is left, which says nothing of the snapshot.
TEST_F(SlotFileTest, ASnapshotThatCannotBeReadNowStays) {
  const SlotFiles files(folder_);
  ASSERT_TRUE(files.Write(kOwner, "a", {{1, 2, 3}, "salt", 512}).has_value());
  const auto failed = WithLimit(RLIMIT_NOFILE, 0, [&] { return files.Read(kOwner, "a"); });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(failed.error().message, ::testing::HasSubstr("open"));
  const auto read = files.Read(kOwner, "a");
  ASSERT_TRUE(read.has_value() && read->has_value());
  EXPECT_EQ((*read)->tokens, (std::vector<api::TokenId>{1, 2, 3}));
}

// Neither the snapshot of this name nor another tenant's goes for one that is not written.
// Each of them is looked at when one is saved.
TEST_F(SlotFileTest, SmallFilesAreFew) {
  const SlotFiles files(folder_, 100'000, 10'000);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(files.Write(kOwner, std::to_string(i), {{1}, "", 0}));
  EXPECT_EQ(Files().size(), 10U);
  EXPECT_TRUE(files.Read(kOwner, "29").value());
}

TEST_F(SlotFileTest, AWriteThatFailsLeavesTheSnapshotsThatWereThere) {
  const SlotFiles files(folder_, 20'000, 0);
  const SlotPrefix old{std::vector<api::TokenId>(500, 7), "", 0};  // 2 KB
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(files.Write({"bob", "m"}, name, old).has_value());
  ASSERT_TRUE(files.Write(kOwner, "a", {{1, 2, 3}, "salt", 512}).has_value());
  const SlotPrefix large{std::vector<api::TokenId>(1500, 8), "", 0};
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{1000}, rlim_t{6000}}) {
    const auto failed = WithLimit(RLIMIT_FSIZE, bytes, [&] { return files.Write(kOwner, "a", large); });
    ASSERT_FALSE(failed.has_value()) << bytes;
    EXPECT_EQ(failed.error().code, api::ErrorCode::kUnavailable);
    EXPECT_THAT(failed.error().message, ::testing::HasSubstr("write"));
    const auto read = files.Read(kOwner, "a").value();
    ASSERT_TRUE(read.has_value()) << bytes;
    EXPECT_EQ(read->tokens.size(), 3u);
    EXPECT_EQ(Files().size(), 4u) << bytes;
  }
  const auto failed = WithLimit(RLIMIT_NOFILE, 0, [&] { return files.Write(kOwner, "a", large); });
  ASSERT_FALSE(failed.has_value());
  EXPECT_TRUE(files.Read(kOwner, "a").value().has_value());
  ASSERT_TRUE(files.Write(kOwner, "a", large).has_value());
  EXPECT_EQ(files.Read(kOwner, "a").value()->tokens.size(), 1500u);
  uint64_t bytes = 0;
  for (const fs::path& path : Files()) bytes += fs::file_size(path);
  EXPECT_LE(bytes, 20'000u);
}

TEST_F(SlotFileTest, AFolderThatCannotBeUsedIsAnError) {
  std::ofstream(folder_) << "a file";
  const auto failed = SlotFiles(folder_).Write(kOwner, "a", {{1}, "", 0});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, api::ErrorCode::kUnavailable);
  EXPECT_FALSE(SlotFiles(folder_).Read(kOwner, "a").value().has_value());
}

}  // namespace
}  // namespace quire::server
