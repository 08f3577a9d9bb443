#include "server/tier/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <future>
#include <random>
#include <string_view>
#include <thread>

#include "api/base/io_thread.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlock = 4096;  // what each of the files here takes

class DiskTiers : public testing::Test {
 protected:
  DiskTiers() {
    std::string pattern = (fs::temp_directory_path() / "quire-tier-XXXXXX").string();
    folder_ = fs::path(::mkdtemp(pattern.data())) / "prefixes";
    spdlog::set_level(spdlog::level::off);
  }
  ~DiskTiers() override {
    spdlog::set_level(spdlog::level::info);
    fs::remove_all(folder_.parent_path());
  }

  std::unique_ptr<DiskTier> Open(uint64_t budget = 1 << 30, std::function<int(const char*)> fault = {}) {
    auto tier = DiskTier::Open({.folder = folder_,
                                .budget_bytes = budget,
                                .owners = SegmentIndex::Owners::kTenants,
                                .retry_after = std::chrono::nanoseconds(0),
                                .fault = std::move(fault)});
    EXPECT_TRUE(tier.has_value());
    return tier ? *std::move(tier) : nullptr;
  }
  static SnapshotKey KeyOf(int number) { return HashOf(fmt::format("key {}", number)); }
  static std::string ContentOf(int number) {
    std::string content(static_cast<size_t>(1000 + number * 7), '\0');
    std::minstd_rand random(static_cast<uint32_t>(number + 1));
    for (char& byte : content) byte = static_cast<char>(random());
    return content;
  }
  // As many tokens as its number says.
  static std::unique_ptr<DiskTier::Writer> CreateOf(DiskTier& tier, int number) {
    const PrefixOrigin origin{.model = "m", .segment_tokens = 1000};
    const std::vector<int32_t> tokens(static_cast<size_t>(number), 7);
    return tier.Create({KeyOf(number), HashOf("parent"), 0, number, false, ContentOf(number).size()}, tokens,
                       &origin);
  }
  static bool Put(DiskTier& tier, int number) {
    const std::string content = ContentOf(number);
    auto writer = CreateOf(tier, number);
    const std::string_view text = content;
    return writer && writer->Write(text.substr(0, 400)) && writer->Write(text.substr(400)) &&
           writer->Commit();
  }
  // Nothing where there is none; what was read is compared with what was written.
  static bool Get(DiskTier& tier, int number) {
    auto reader = tier.OpenSegment(KeyOf(number));
    if (!reader) return false;
    std::string content(reader->bytes(), '\0');
    if (!reader->Read(content) || !reader->Verify()) return false;
    EXPECT_EQ(content, ContentOf(number));
    return true;
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(folder_)) files.push_back(file.path());
    std::ranges::sort(files);
    return files;
  }

  fs::path folder_;
};

TEST_F(DiskTiers, WhatWasWrittenIsThereAfterAnotherStart) {
  {
    auto tier = Open();
    ASSERT_TRUE(Put(*tier, 5));
    EXPECT_TRUE(Get(*tier, 5));
    EXPECT_FALSE(Put(*tier, 5)) << "nothing is written twice";
  }
  auto tier = Open();
  EXPECT_TRUE(Get(*tier, 5));
  EXPECT_FALSE(Get(*tier, 6));
  EXPECT_EQ(tier->EndsBehind(HashOf("parent")), std::vector<int64_t>{5});
  EXPECT_EQ(tier->stats().files, 1u);
}

TEST_F(DiskTiers, FilesArePrivate) {
  auto tier = Open();
  ASSERT_TRUE(Put(*tier, 1));
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  for (const fs::path& file : Files()) {
    ASSERT_EQ(::stat(file.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << file;
  }
}

TEST_F(DiskTiers, ABudgetKeepsWhatWasUsedLast) {
  auto tier = Open(4 * kBlock);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Put(*tier, i));
  const SnapshotKey used = KeyOf(0);
  tier->Touch({&used, 1});
  ASSERT_TRUE(Put(*tier, 4));
  EXPECT_TRUE(Get(*tier, 0));
  EXPECT_FALSE(Get(*tier, 1));
  EXPECT_LE(tier->stats().bytes, 4u * kBlock);
  EXPECT_GT(tier->stats().evictions, 0u);
  tier = Open(2 * kBlock);
  EXPECT_LE(tier->stats().bytes, 2u * kBlock);
  EXPECT_EQ(tier->stats().files, 2u);
}

TEST_F(DiskTiers, WhoFillsItEvictsItsOwnAlsoAfterAnotherStart) {
  const auto put = [](DiskTier& tier, const std::string& isolation, int32_t first) {
    const PrefixOrigin origin{.model = "m", .isolation = isolation, .segment_tokens = 4};
    const std::vector<int32_t> tokens{first, 1, 2, 3, 4, 5, 6, 7};
    const KeyChain chain(tier.RootOf(origin), tokens, origin.segment_tokens);
    for (const PrefixPiece& piece : chain.Pieces(0, chain.tokens(), /*needs_state=*/false)) {
      const StoredSegment segment{piece.key, chain.Prefix(piece.begin()), piece.from, piece.to, false, 1000};
      const auto writer = tier.Create(segment, chain.Tokens(piece.from, piece.to),
                                      segment.begins_prefix() ? &origin : nullptr);
      EXPECT_TRUE(writer && writer->Write(std::string(1000, 'b')) && writer->Commit());
    }
    return chain.Object(chain.tokens(), false);
  };
  auto tier = Open();
  const SnapshotKey quiet = put(*tier, "5:quiet", 0);
  for (int32_t i = 0; i < 10; ++i) put(*tier, "5:flood", i);
  const uint64_t all = tier->stats().bytes;
  tier = Open(all / 2);
  EXPECT_LE(tier->stats().files, 11u);
  EXPECT_TRUE(tier->PrefixOf(quiet));
  for (int32_t i = 10; i < 30; ++i) put(*tier, "5:flood", i);
  EXPECT_TRUE(tier->PrefixOf(quiet));
}

// The disk fills up with others' files: the tier gives back what it has.
TEST_F(DiskTiers, AShareOfTheFreeSpaceFollowsIt) {
  uint64_t others_leave = 400'000;
  uint64_t own = 0;
  auto opened = DiskTier::Open(
      {.folder = folder_, .free_space_share = 0.1, .free_bytes = [&] { return others_leave - own; }});
  ASSERT_TRUE(opened.has_value());
  const auto tier = *std::move(opened);
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(Put(*tier, i));
    own = tier->stats().bytes;
    EXPECT_LE(own, 40'000u);
  }
  EXPECT_GT(own, 28'000u);
  EXPECT_EQ(tier->stats().budget_bytes, 40'000u);
  others_leave = 120'000;
  EXPECT_TRUE(Put(*tier, 30));
  own = tier->stats().bytes;
  EXPECT_LE(own, 12'000u);
  others_leave = own;
  EXPECT_FALSE(Put(*tier, 31)) << "nothing is free";
  EXPECT_TRUE(tier->stats().writing) << "which is no failure";
}

// A disk that answers nothing holds those up who use it, not those who read the figures (the I/O thread).
TEST_F(DiskTiers, FiguresDoNotWaitForAHangingDisk) {
  std::promise<void> hangs, answers;
  auto opened = DiskTier::Open({.folder = folder_, .budget_bytes = 1 << 20, .fault = [&](const char* call) {
                                  if (std::string_view(call) != "unlink") return 0;
                                  hangs.set_value();
                                  answers.get_future().wait();
                                  return 0;
                                }});
  ASSERT_TRUE(opened.has_value());
  const auto tier = *std::move(opened);
  EXPECT_TRUE(Put(*tier, 1));
  std::jthread prunes([&] { tier->PruneAll(); });
  hangs.get_future().wait();
  auto figures = std::async(std::launch::async, [&] {
    const api::IoThreadMark io_thread;
    return tier->stats();
  });
  const bool ready = figures.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  answers.set_value();
  EXPECT_TRUE(ready);
  EXPECT_EQ(figures.get().files, 1U) << "as of the last change";
  prunes.join();
  EXPECT_EQ(tier->stats().files, 0U);
  EXPECT_EQ(api::BlockingCallsOnIoThread(), 0U);
}

// Any flipped bit: a miss, and the file is gone.
TEST_F(DiskTiers, AFlippedBitIsAMiss) {
  const bool all = std::getenv("QUIRE_TIER_ALL") != nullptr;
  Put(*Open(), 1);
  const fs::path file = Files().front();
  std::ifstream in(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(whole.size(), 1000u);
  for (size_t bit = 0; bit < whole.size() * 8; bit += all ? 1 : 37) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    std::ofstream(file, std::ios::binary | std::ios::trunc) << changed;
    auto tier = Open();
    EXPECT_FALSE(Get(*tier, 1)) << bit;
    EXPECT_EQ(tier->stats().corrupt, 1u) << bit;
    EXPECT_FALSE(fs::exists(file)) << bit;
  }
  for (const size_t size : {size_t{0}, size_t{100}, size_t{232}, whole.size() - 1}) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_FALSE(Get(*Open(), 1)) << size;
  }
  std::ofstream(file, std::ios::binary | std::ios::trunc) << whole;
  EXPECT_TRUE(Get(*Open(), 1));
  // While the folder is in use.
  auto tier = Open();
  std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, 500);
  EXPECT_FALSE(Get(*tier, 1));
  EXPECT_FALSE(tier->Has(KeyOf(1)));
}

TEST_F(DiskTiers, AnotherSecretOrAnotherNameIsAMiss) {
  Put(*Open(), 1);
  const fs::path file = Files().front();
  fs::copy_file(file, file.parent_path() / (HexOf(KeyOf(2)) + ".quire-prefix"));
  EXPECT_FALSE(Get(*Open(), 2));
  EXPECT_TRUE(Get(*Open(), 1));
  std::ofstream(folder_ / "secret", std::ios::binary | std::ios::trunc) << std::string(32, 'x');
  EXPECT_FALSE(Get(*Open(), 1));
}

TEST_F(DiskTiers, FilesOfAnotherVersionAreCollected) {
  Put(*Open(), 1);
  const fs::path file = Files().front();
  std::fstream change(file, std::ios::binary | std::ios::in | std::ios::out);
  change.write("QPREFIX1", 8);
  change.close();
  auto tier = Open();
  EXPECT_FALSE(Get(*tier, 1));
  EXPECT_EQ(tier->stats().corrupt, 0u);
  EXPECT_FALSE(fs::exists(file));
}

// The process ends at the n-th system call, and with it everything that would have been cleaned up.
TEST_F(DiskTiers, ACrashAtAnyCallLosesAtMostWhatWasBeingWritten) {
  const bool all = std::getenv("QUIRE_TIER_ALL") != nullptr;
  const int points = all ? 1000 : 60;
  for (int point = 0; point < points; ++point) {
    int calls = 0;
    std::vector<int> written;
    {
      auto tier = Open(20 * kBlock, [&](const char*) { return ++calls > point ? EIO : 0; });
      for (int i = 0; i < points / 4; ++i) {
        if (Put(*tier, i)) written.push_back(i);
      }
    }
    auto tier = Open(20 * kBlock);
    EXPECT_EQ(tier->stats().corrupt, 0u) << point;
    const size_t kept = std::min<size_t>(written.size(), 8);
    for (size_t i = written.size() - kept; i < written.size(); ++i)
      EXPECT_TRUE(Get(*tier, written[i])) << point;
    for (const fs::path& file : Files()) {
      EXPECT_FALSE(file.filename().string().starts_with("new-")) << "left behind at " << point;
    }
    for (const fs::path& file : Files()) fs::remove(file);
  }
}

TEST_F(DiskTiers, AFullDiskSwitchesWritingOffAndOnAgain) {
  int error = 0;
  auto tier = Open(1 << 30, [&](const char* call) { return std::string_view(call) == "write" ? error : 0; });
  ASSERT_TRUE(Put(*tier, 1));
  error = ENOSPC;
  EXPECT_FALSE(Put(*tier, 2));
  EXPECT_FALSE(tier->stats().writing);
  EXPECT_TRUE(Get(*tier, 1)) << "reading goes on";
  error = 0;
  EXPECT_TRUE(Put(*tier, 2));
  EXPECT_TRUE(tier->stats().writing);
  EXPECT_EQ(tier->stats().failures, 1u);
  EXPECT_TRUE(Get(*tier, 2));
}

TEST_F(DiskTiers, TwoDaemonsShareAFolder) {
  auto one = Open();
  auto two = Open();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Put(*one, i));
    EXPECT_TRUE(Put(*two, i));  // the same content under the same name
    EXPECT_TRUE(Put(*two, 100 + i));
  }
  // A file that one writes is no remnant to another that starts.
  auto writer = CreateOf(*one, 50);
  ASSERT_TRUE(writer && writer->Write(ContentOf(50)));
  auto three = Open();
  EXPECT_TRUE(writer->Commit());
  EXPECT_TRUE(Get(*one, 50));
  EXPECT_TRUE(Get(*three, 119));
  fs::remove(folder_ / (HexOf(KeyOf(3)) + ".quire-prefix"));
  EXPECT_FALSE(Get(*one, 3));
  EXPECT_FALSE(Get(*two, 3));
  EXPECT_EQ(one->stats().corrupt, 0u);
}

TEST(KeyChains, PrefixesOfOtherTokensTenantsAndModelsDiffer) {
  std::vector<int32_t> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  const SnapshotKey secret = HashOf("secret");
  const KeyChain chain(HmacOf(secret, "a"), tokens, 32);
  const KeyChain shorter(HmacOf(secret, "a"), {tokens.begin(), tokens.begin() + 70}, 32);
  const KeyChain other(HmacOf(secret, "b"), tokens, 32);
  auto changed = tokens;
  changed[40] = 7;
  const KeyChain diverged(HmacOf(secret, "a"), changed, 32);
  for (int64_t to = 1; to <= 70; ++to) {
    EXPECT_EQ(chain.Object(to, false), shorter.Object(to, false)) << to;
    EXPECT_NE(chain.Object(to, false), chain.Object(to, true)) << to;
    EXPECT_NE(chain.Object(to, false), other.Object(to, false)) << to;
    EXPECT_EQ(chain.Object(to, false) == diverged.Object(to, false), to <= 40) << to;
    EXPECT_NE(chain.Object(to, false), chain.Object(to + 1, false)) << to;
  }
}

}  // namespace
}  // namespace quire::server
