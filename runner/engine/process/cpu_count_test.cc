#include "runner/engine/process/cpu_count.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string_view>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

// The files of a machine, below a folder of their own.
class MachineFiles {
 public:
  ~MachineFiles() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  const fs::path& root() const { return root_; }

  void Write(const fs::path& path, std::string_view text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void Siblings(int processor, std::string_view list, std::string_view file = "core_cpus_list") const {
    Write(fs::path("sys/devices/system/cpu/cpu" + std::to_string(processor)) / "topology" / file, list);
  }
  void Group(const fs::path& group, std::string_view cpu_max) const {
    Write("sys/fs/cgroup" / group / "cpu.max", cpu_max);
  }
  int32_t Cores(std::vector<int> processors) const { return UsableCores(processors, root_); }

 private:
  const fs::path root_ = OwnFolder();
};

TEST(UsableCores, AreThoseOfTheProcessorsAllowed) {
  const MachineFiles machine;
  EXPECT_EQ(machine.Cores({0, 1, 2, 5}), 4);
  EXPECT_EQ(machine.Cores({3}), 1);
  EXPECT_EQ(machine.Cores({}), 1);
}

TEST(UsableCores, CountHardwareThreadsOfACoreOnce) {
  const MachineFiles machine;
  for (int core = 0; core < 4; ++core) {
    const std::string list = std::to_string(core) + "," + std::to_string(core + 4);
    machine.Siblings(core, list);
    machine.Siblings(core + 4, list);
  }
  EXPECT_EQ(machine.Cores({0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(machine.Cores({0, 4}), 1);
  EXPECT_EQ(machine.Cores({0, 5, 6}), 3);
}

TEST(UsableCores, ReadWhatOlderKernelsTell) {
  const MachineFiles machine;
  machine.Siblings(0, "0-1", "thread_siblings_list");
  machine.Siblings(1, "0-1", "thread_siblings_list");
  EXPECT_EQ(machine.Cores({0, 1}), 1);
}

TEST(UsableCores, FollowTheQuotasOfVersionOne) {
  const MachineFiles machine;
  machine.Write("proc/self/cgroup", "9:memory:/a\n4:cpu,cpuacct:/docker/c1\n3:cpuset:/\n0::/");
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto limit = [&](const fs::path& group, std::string_view quota) {
    machine.Write("sys/fs/cgroup/cpu" / group / "cpu.cfs_quota_us", quota);
    machine.Write("sys/fs/cgroup/cpu" / group / "cpu.cfs_period_us", "100000");
  };
  limit("", "-1");
  limit("docker/c1", "-1");
  EXPECT_EQ(machine.Cores(eight), 8);
  limit("docker", "550000");
  EXPECT_EQ(machine.Cores(eight), 6);
  limit("docker/c1", "400000");
  EXPECT_EQ(machine.Cores(eight), 4);
}

TEST(UsableCores, FollowTheTightestQuotaUpTheTree) {
  const MachineFiles machine;
  machine.Write("proc/self/cgroup", "0::/system.slice/quired.service/runner");
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(machine.Cores(eight), 8) << "no file says anything";
  machine.Group("system.slice/quired.service/runner", "max 100000");
  EXPECT_EQ(machine.Cores(eight), 8);
  machine.Group("system.slice/quired.service", "600000 100000");
  EXPECT_EQ(machine.Cores(eight), 6);
  machine.Group("system.slice", "250000 100000");
  EXPECT_EQ(machine.Cores(eight), 3) << "two and a half";
  machine.Group("system.slice/quired.service/runner", "10000 100000");
  EXPECT_EQ(machine.Cores(eight), 1);
  EXPECT_EQ(machine.Cores({0, 1}), 1);
}

TEST(UsableCores, AQuotaAboveTheProcessorsChangesNothing) {
  const MachineFiles machine;
  machine.Write("proc/self/cgroup", "0::/");
  machine.Group("", "1600000 100000");
  EXPECT_EQ(machine.Cores({0, 1}), 2);
}

TEST(UsableCores, OfThisProcess) {
  const std::vector<int> allowed = AllowedProcessors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), static_cast<int32_t>(allowed.size()));
}

}  // namespace
}  // namespace quire::runner::engine
