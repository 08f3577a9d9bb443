#include "runner/engine/process/memory_policy.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runner/engine/process/cpu_count.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

int PolicyOfThisThread() {
  int policy = -1;
  EXPECT_EQ(::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0), 0);
  return policy;
}

// A policy is the thread's that sets it, so that other tests do not see it.
void InThread(const std::function<void()>& work) { std::thread(work).join(); }

class MemoryPolicy : public testing::Test {
 protected:
  void SetUp() override {
    if (int policy = 0; ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0) {
      GTEST_SKIP() << "this system refuses memory policies";
    }
    nodes_ = NodesOf(AllowedProcessors(), "/");
    if (nodes_.empty()) GTEST_SKIP() << "the kernel names no NUMA nodes";
    int error = 0;
    InThread([&] { error = InterleaveMemory(nodes_); });
    if (error == EPERM) GTEST_SKIP() << "this system refuses memory policies";
  }

  std::vector<int> nodes_;
};

TEST_F(MemoryPolicy, InterleavesForAThreadAndThoseItStarts) {
  InThread([this] {
    ASSERT_EQ(InterleaveMemory(nodes_), 0);
    EXPECT_EQ(PolicyOfThisThread(), MPOL_INTERLEAVE);
    InThread([] { EXPECT_EQ(PolicyOfThisThread(), MPOL_INTERLEAVE); });
  });
  EXPECT_EQ(PolicyOfThisThread(), MPOL_DEFAULT);
}

TEST_F(MemoryPolicy, FollowsTheMode) {
  InThread([] {
    EXPECT_EQ(SetMemoryPolicy(NumaMode::kOff), "");
    EXPECT_EQ(PolicyOfThisThread(), MPOL_DEFAULT);
  });
  InThread([] {
    EXPECT_EQ(SetMemoryPolicy(NumaMode::kInterleave), "");
    EXPECT_EQ(PolicyOfThisThread(), MPOL_INTERLEAVE);
  });
  if (nodes_.size() > 1) return;
  InThread([] {
    EXPECT_EQ(SetMemoryPolicy(NumaMode::kAuto), "");
    EXPECT_EQ(PolicyOfThisThread(), MPOL_DEFAULT);
  });
}

TEST_F(MemoryPolicy, RefusesNodesBeyondTheKernels) {
  const std::vector<int> nodes = {1 << 20};
  EXPECT_EQ(InterleaveMemory(nodes), EINVAL);
}

TEST(NodesOf, ReadsTheKernelsFolders) {
  const fs::path root = fs::path(testing::TempDir()) / "quire-nodes-of";
  fs::remove_all(root);
  for (const char* folder : {"cpu0/node0", "cpu0/topology", "cpu1/node0", "cpu7/node3", "cpu8/nodes"}) {
    fs::create_directories(root / "sys/devices/system/cpu" / folder);
  }
  const std::vector<int> processors = {7, 0, 1, 8, 9};
  EXPECT_EQ(NodesOf(processors, root), (std::vector<int>{0, 3}));
  EXPECT_EQ(NodesOf(std::vector<int>{8, 9}, root), std::vector<int>());
  fs::remove_all(root);
}

TEST(PlanOf, GivesEveryNodeItsCores) {
  const fs::path root = fs::path(testing::TempDir()) / "quire-plan-of";
  fs::remove_all(root);
  const fs::path folder = root / "sys/devices/system/cpu";
  // Hardware threads 0 and 2 are one core, on node 0; 1 and 3 one on node 4.
  for (const int processor : {0, 1, 2, 3}) {
    const fs::path cpu = folder / ("cpu" + std::to_string(processor));
    fs::create_directories(cpu / (processor % 2 == 0 ? "node0" : "node4"));
    fs::create_directories(cpu / "topology");
    std::ofstream(cpu / "topology/core_cpus_list") << (processor % 2 == 0 ? "0,2\n" : "1,3\n");
  }
  using Cores = std::vector<std::vector<int>>;
  const NumaPlan plan = PlanOf(std::vector<int>{0, 1, 2, 3}, root);
  ASSERT_EQ(plan.nodes.size(), 2U);
  EXPECT_EQ(plan.nodes[0].cores, (Cores{{0, 2}}));
  EXPECT_EQ(plan.nodes[1].cores, (Cores{{1, 3}}));
  EXPECT_TRUE(plan.spreads());
  EXPECT_EQ(plan.weight_copies(), 1U);
  EXPECT_FALSE(PlanOf(std::vector<int>{0, 2}, root).spreads()) << "allowed on one node only";
  EXPECT_TRUE(PlanOf(std::vector<int>{9}, root).nodes.empty()) << "unknown to the kernel";
  fs::remove_all(root);
}

}  // namespace
}  // namespace quire::runner::engine
