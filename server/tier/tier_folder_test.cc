#include "server/tier/tier_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/tier/disk_tier.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ContentsOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

mode_t ModeOf(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// Names, kinds, modes and contents of what a folder has.
std::map<std::string, std::string> Listing(const fs::path& folder) {
  std::map<std::string, std::string> listing;
  for (const auto& file : fs::recursive_directory_iterator(folder)) {
    std::string what = fmt::format("{:o}", ModeOf(file.path()));
    if (file.is_symlink()) {
      what += " -> " + fs::read_symlink(file.path()).string();
    } else if (file.is_regular_file()) {
      what += " " + ContentsOf(file.path());
    }
    listing[fs::relative(file.path(), folder).string()] = what;
  }
  return listing;
}

class TierFolders : public testing::Test {
 protected:
  TierFolders() {
    std::string pattern = (fs::temp_directory_path() / "quire-folder-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    folder_ = root_ / "given";
    fs::create_directory(folder_);
    ::chmod(folder_.c_str(), 0755);
  }
  ~TierFolders() override { fs::remove_all(root_); }

  static std::unique_ptr<DiskTier> Open(const fs::path& folder, uint64_t index_bytes = uint64_t{64} << 20) {
    auto tier = DiskTier::Open({.folder = folder,
                                .budget_bytes = uint64_t{1} << 30,
                                .index_bytes = index_bytes,
                                .owners = SegmentIndex::Owners::kTenants});
    EXPECT_TRUE(tier.has_value()) << tier.error().message;
    return tier ? *std::move(tier) : nullptr;
  }
  static std::string ErrorOf(const fs::path& folder) {
    const auto tier = DiskTier::Open({.folder = folder, .budget_bytes = uint64_t{1} << 30});
    return tier ? "" : tier.error().message;
  }
  static bool Put(DiskTier& tier, int number, const std::string& isolation = "") {
    const PrefixOrigin origin{.model = "m", .isolation = isolation, .segment_tokens = 4};
    const std::vector<int32_t> tokens{number};
    const KeyChain chain(tier.RootOf(origin), tokens, origin.segment_tokens);
    const auto writer =
        tier.Create({chain.Object(1, false), chain.Prefix(0), 0, 1, false, 5}, tokens, &origin);
    return writer && writer->Write(std::string("12345")) && writer->Commit();
  }
  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

  fs::path root_;
  fs::path folder_;
};

TEST_F(TierFolders, WhatIsNotOursStaysAsItIs) {
  const std::string hex(64, 'a');
  Write(folder_ / "new-year.txt", "plans");
  Write(folder_ / "new-1-2", "two");
  Write(folder_ / "notes.quire-prefix", "notes");
  Write(folder_ / (std::string(64, 'g') + ".quire-prefix"), "no hex");
  fs::create_directory(folder_ / (hex + ".quire-prefix"));
  fs::create_directory(folder_ / "new-0123456789abcdef.quire-part");
  Write(root_ / "elsewhere", "elsewhere");
  fs::create_symlink(root_ / "elsewhere", folder_ / (std::string(64, 'b') + ".quire-prefix"));
  fs::create_symlink(root_ / "elsewhere", folder_ / "new-fedcba9876543210.quire-part");
  const auto before = Listing(folder_);
  fs::create_directory_symlink(folder_, root_ / "link");
  for (const fs::path& folder : {folder_, root_ / "link"}) {
    const auto tier = Open(folder);
    ASSERT_NE(tier, nullptr);
    Put(*tier, 1);
    tier->PruneAll();
    auto after = Listing(folder_);
    EXPECT_EQ(after.erase("secret"), 1u);
    EXPECT_EQ(after, before);
    EXPECT_EQ(ModeOf(folder_), 0755u);
    EXPECT_EQ(ModeOf(folder_ / "secret"), 0600u);
    EXPECT_EQ(ContentsOf(root_ / "elsewhere"), "elsewhere");
  }
}

TEST_F(TierFolders, ASecretOfSomebodyElseIsRefusedByName) {
  for (const std::string& text : {std::string(), std::string("my diary"), std::string(33, 'x')}) {
    Write(folder_ / "secret", text);
    const auto before = Listing(folder_);
    EXPECT_THAT(ErrorOf(folder_), HasSubstr((folder_ / "secret").string()));
    EXPECT_EQ(Listing(folder_), before);
  }
  fs::remove(folder_ / "secret");
  fs::create_symlink(root_ / "target", folder_ / "secret");
  EXPECT_THAT(ErrorOf(folder_), HasSubstr((folder_ / "secret").string()));
  EXPECT_FALSE(fs::exists(root_ / "target"));
}

TEST_F(TierFolders, AFolderThatOthersMayWriteIsRefusedByName) {
  fs::create_directory_symlink(folder_, root_ / "link");
  for (const mode_t mode : {0777, 01777, 0775, 0702}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    for (const fs::path& folder : {folder_, root_ / "link"}) {
      EXPECT_THAT(ErrorOf(folder), HasSubstr(folder.string() + ": use")) << mode;
      EXPECT_TRUE(fs::is_empty(folder_));
      EXPECT_EQ(ModeOf(folder_), mode);
    }
  }
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  ASSERT_EQ(::chown(folder_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(ErrorOf(folder_), HasSubstr(folder_.string()));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(TierFolders, ARefusalLeavesNothingBehind) {
  Write(root_ / "file", "text");
  EXPECT_NE(ErrorOf(root_ / "file"), "");
  EXPECT_NE(ErrorOf(root_ / "file" / "below"), "");
  EXPECT_EQ(ContentsOf(root_ / "file"), "text");
  fs::create_directory_symlink(root_ / "nowhere", root_ / "dangling");
  EXPECT_NE(ErrorOf(root_ / "dangling"), "");
  EXPECT_FALSE(fs::exists(root_ / "nowhere"));
  EXPECT_TRUE(fs::is_symlink(root_ / "dangling"));
}

TEST_F(TierFolders, WhatAKilledProcessLeftIsRemoved) {
  Put(*Open(folder_), 1);
  Write(folder_ / "new-0123456789abcdef.quire-part", "half");
  const auto tier = Open(folder_);
  EXPECT_FALSE(fs::exists(folder_ / "new-0123456789abcdef.quire-part"));
  EXPECT_EQ(tier->stats().files, 1u);
}

TEST_F(TierFolders, FilesCountAsTheBlocksThatTheyTake) {
  auto tier = Open(folder_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Put(*tier, i));
  uint64_t blocks = 0;
  for (const auto& file : fs::directory_iterator(folder_)) {
    struct stat status {};
    if (file.path().extension() == ".quire-prefix" && ::stat(file.path().c_str(), &status) == 0)
      blocks += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  EXPECT_GE(tier->stats().bytes, blocks);
  EXPECT_GE(tier->stats().bytes, 20u * 4096);
  EXPECT_EQ(Open(folder_)->stats().bytes, tier->stats().bytes);
  EXPECT_EQ(tier->PruneAll().bytes, 20u * 4096);
}

TEST_F(TierFolders, TheIndexStaysWithinItsBytes) {
  constexpr uint64_t kIndex = 40 * SegmentIndex::kEntryBytes;
  {
    auto all = Open(folder_);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(*all, i));
    EXPECT_EQ(all->stats().files, 100u);
  }
  auto tier = Open(folder_, kIndex);
  EXPECT_LE(tier->stats().files, 40u);
  EXPECT_GE(tier->stats().files, 30u);
  tier->RemoveSurplus();
  EXPECT_EQ(Open(folder_)->stats().files, tier->stats().files);
  // One who writes many small segments removes segments of its own.
  ASSERT_TRUE(Put(*tier, 1000, "5:quiet"));
  for (int i = 100; i < 200; ++i) ASSERT_TRUE(Put(*tier, i, "5:flood"));
  EXPECT_LE(tier->stats().files, 40u);
  const auto left = tier->Prefixes();
  EXPECT_TRUE(
      std::ranges::any_of(left, [](const StoredPrefix& one) { return one.origin.isolation == "5:quiet"; }));
}

}  // namespace
}  // namespace quire::server
