#include "api/base/memory_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace quire::api {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGiB = int64_t{1} << 30;

class MemoryLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "quire-limit-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    Write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    1024 kB\n");
    Write("proc/self/cgroup", "0::/system.slice/quire.service\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

TEST_F(MemoryLimitTest, IsTheMachinesWhereNoGroupSaysLess) {
  EXPECT_EQ(FindMemoryLimit(root()).bytes, 16 * kGiB);
  Write("sys/fs/cgroup/system.slice/quire.service/memory.max", "max\n");
  Write("sys/fs/cgroup/system.slice/memory.max", std::to_string(32 * kGiB));
  const MemoryLimit limit = FindMemoryLimit(root());
  EXPECT_EQ(limit.bytes, 16 * kGiB);
  EXPECT_EQ(limit.from, "the machine");
  EXPECT_EQ(FindAvailableMemory(root()), 1 << 20);
}

TEST_F(MemoryLimitTest, IsTheTightestOfAllGroupsAbove) {
  Write("sys/fs/cgroup/system.slice/quire.service/memory.max", std::to_string(8 * kGiB));
  EXPECT_EQ(FindMemoryLimit(root()).bytes, 8 * kGiB);
  Write("sys/fs/cgroup/system.slice/quire.service/memory.high", std::to_string(7 * kGiB));
  EXPECT_EQ(FindMemoryLimit(root()).bytes, 7 * kGiB);
  Write("sys/fs/cgroup/system.slice/memory.max", std::to_string(6 * kGiB));
  const MemoryLimit limit = FindMemoryLimit(root());
  EXPECT_EQ(limit.bytes, 6 * kGiB);
  EXPECT_EQ(limit.from, (root() / "sys/fs/cgroup/system.slice/memory.max").string());
}

TEST_F(MemoryLimitTest, KnowsTheFirstVersionsGroups) {
  Write("proc/self/cgroup", "5:cpu:/\n4:memory:/jail/one\n0::/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("sys/fs/cgroup/memory/jail/memory.limit_in_bytes", std::to_string(3 * kGiB));
  Write("sys/fs/cgroup/memory/jail/one/memory.limit_in_bytes", std::to_string(4 * kGiB));
  EXPECT_EQ(FindMemoryLimit(root()).bytes, 3 * kGiB);
}

TEST_F(MemoryLimitTest, SaysNothingWhereNothingIsKnown) {
  fs::remove_all(root() / "proc");
  EXPECT_EQ(FindMemoryLimit(root()).bytes, 0);
}

TEST(MemoryLimit, OfThisMachineIsSomething) { EXPECT_GT(FindMemoryLimit().bytes, 0); }

}  // namespace
}  // namespace quire::api
