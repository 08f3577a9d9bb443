#include "server/tier/named_prefix.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {
namespace {

namespace fs = std::filesystem;

class NamedPrefixes : public testing::Test {
 protected:
  NamedPrefixes() {
    std::string pattern = (fs::temp_directory_path() / "quire-named-XXXXXX").string();
    folder_ = fs::path(::mkdtemp(pattern.data())) / "prefixes";
    spdlog::set_level(spdlog::level::off);
  }
  ~NamedPrefixes() override {
    spdlog::set_level(spdlog::level::info);
    fs::remove_all(folder_.parent_path());
  }
  std::unique_ptr<DiskTier> Open(std::function<int(const char*)> fault = {}) const {
    auto tier = DiskTier::Open({.folder = folder_,
                                .budget_bytes = 1 << 20,
                                .owners = SegmentIndex::Owners::kTenants,
                                .retry_after = std::chrono::nanoseconds(0),
                                .fault = std::move(fault)});
    EXPECT_TRUE(tier.has_value());
    return tier ? *std::move(tier) : nullptr;
  }
  fs::path File() const {
    for (const auto& file : fs::directory_iterator(folder_))
      if (file.path().extension() == ".quire-prefix") return file.path();
    return {};
  }
  fs::path folder_;
};

const SlotOwner kAlice{"alice", "digest"};
constexpr const char* kName = "../a.bin";
const SlotPrefix kThree{{1, 2, 3}, "salt of two words", 512};

TEST_F(NamedPrefixes, TheySurviveAndAreReplaced) {
  ASSERT_TRUE(SaveNamedPrefix(*Open(), kAlice, kName, kThree));
  const auto tier = Open();
  const auto read = ReadNamedPrefix(*tier, kAlice, kName);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tokens, kThree.tokens);
  EXPECT_EQ(read->cache_salt, kThree.cache_salt);
  EXPECT_EQ(read->num_ctx, kThree.num_ctx);
  EXPECT_FALSE(ReadNamedPrefix(*tier, {"bob", "digest"}, kName));
  EXPECT_FALSE(ReadNamedPrefix(*tier, {"alice", "other"}, kName));
  EXPECT_FALSE(ReadNamedPrefix(*tier, kAlice, "b.bin"));
  EXPECT_TRUE(tier->Prefixes().empty()) << "there is nothing of a model's caches in it";
  ASSERT_TRUE(SaveNamedPrefix(*tier, kAlice, kName, {.tokens = {4}}));
  EXPECT_EQ(ReadNamedPrefix(*tier, kAlice, kName)->tokens, std::vector<int32_t>{4});
  EXPECT_EQ(tier->stats().files, 1U);
}

TEST_F(NamedPrefixes, DamageIsNoPrefix) {
  ASSERT_TRUE(SaveNamedPrefix(*Open(), kAlice, kName, kThree));
  const fs::path path = File();
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto tier = Open();
  for (size_t bit = 0; bit < whole.size() * 8; bit += 13) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    EXPECT_FALSE(ReadNamedPrefix(*tier, kAlice, kName)) << bit;
    EXPECT_FALSE(fs::exists(path)) << bit;
  }
  for (size_t size = 0; size < whole.size(); size += 7) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_FALSE(ReadNamedPrefix(*tier, kAlice, kName)) << size;
  }
}

// Nobody gets an older conversation than the one that was saved last.
TEST_F(NamedPrefixes, AWriteThatFailsLeavesNothing) {
  int error = 0;
  const auto tier = Open([&error](std::string_view call) { return call == "rename" ? error : 0; });
  ASSERT_TRUE(SaveNamedPrefix(*tier, kAlice, kName, kThree));
  error = ENOSPC;
  const auto failed = SaveNamedPrefix(*tier, kAlice, kName, {.tokens = {4}});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, api::ErrorCode::kUnavailable);
  EXPECT_FALSE(ReadNamedPrefix(*tier, kAlice, kName));
  EXPECT_FALSE(SaveNamedPrefix(*tier, kAlice, kName, {.tokens = std::vector<int32_t>(1 << 20, 7)}))
      << "above the budget";
}

}  // namespace
}  // namespace quire::server
