#include "runner/kernels/numa_plan.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

#include "runner/kernels/thread_pool.h"

namespace quire::runner {
namespace {

// Cores of two processors each: 0 and 1, 2 and 3, ...
NumaPlan PlanWith(std::vector<size_t> cores_of_node) {
  NumaPlan plan;
  int processor = 0;
  for (const size_t cores : cores_of_node) {
    NumaNode& node = plan.nodes.emplace_back();
    for (size_t i = 0; i < cores; ++i, processor += 2) node.cores.push_back({processor, processor + 1});
  }
  return plan;
}

TEST(PlanThreads, OneNodePinsNothing) {
  EXPECT_EQ(PlanThreads({}, 2), std::vector<ThreadPlace>(2));
  EXPECT_EQ(PlanThreads(PlanWith({4}), 3), std::vector<ThreadPlace>(3));
  EXPECT_EQ(PlanThreads({}, -1), std::vector<ThreadPlace>(1));
}

TEST(PlanThreads, AThreadForEveryCoreHasItsCore) {
  const std::vector<ThreadPlace> expected = {{0, {0, 1}}, {0, {2, 3}}, {1, {4, 5}}, {1, {6, 7}}};
  EXPECT_EQ(PlanThreads(PlanWith({2, 2}), 4), expected);
}

TEST(PlanThreads, FewerThreadsHaveTheirNode) {
  const std::vector<ThreadPlace> expected = {{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}};
  EXPECT_EQ(PlanThreads(PlanWith({2, 2}), 2), expected);
}

TEST(PlanThreads, AreSharedOutByCores) {
  const std::vector<ThreadPlace> places = PlanThreads(PlanWith({1, 3}), 8);
  ASSERT_EQ(places.size(), 8U);
  EXPECT_EQ(places[1], (ThreadPlace{0, {0, 1}}));
  EXPECT_EQ(places[2], (ThreadPlace{1, {2, 3}}));
  EXPECT_EQ(places[7], (ThreadPlace{1, {6, 7}})) << "more threads than cores begin again";
}

TEST(PlanThreads, ASingleThreadHasAPlace) { EXPECT_EQ(PlanThreads(PlanWith({2, 2}), 1).size(), 1U); }

TEST(NumaPlan, NodesWithoutAThreadNeedNoWeights) {
  NumaPlan plan = PlanWith({8, 8, 8, 8, 8, 8, 8, 8});
  plan.replicates_weights = true;
  const NumaPlan four = plan.ForThreads(4);
  EXPECT_EQ(four.weight_copies(), 4U);
  std::vector<size_t> nodes;
  for (const ThreadPlace& place : PlanThreads(four, 4)) nodes.push_back(place.node);
  EXPECT_EQ(nodes, (std::vector<size_t>{0, 1, 2, 3})) << "each has its own";
  EXPECT_EQ(plan.ForThreads(64).weight_copies(), 8U);
  EXPECT_EQ(plan.ForThreads(1).weight_copies(), 1U);
}

std::vector<int> Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> processors;
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(static_cast<int>(i));
  }
  return processors;
}

TEST(Pinning, AScopeEndsWhereItBegan) {
  std::thread([] {
    const std::vector<int> before = Allowed();
    {
      const PinnedScope here(std::vector<int>{before.back()});
      EXPECT_EQ(Allowed(), std::vector<int>{before.back()});
    }
    EXPECT_EQ(Allowed(), before);
    const PinnedScope nowhere(std::vector<int>{});
    EXPECT_EQ(Allowed(), before);
  }).join();
}

TEST(Pinning, ThreadsOfAPoolRunWhereThePlanSays) {
  const std::vector<int> processors = Allowed();
  if (processors.size() < 2) GTEST_SKIP() << "one processor";
  NumaPlan plan;
  plan.nodes.resize(2);
  plan.nodes[0].cores = {{processors[0]}};
  plan.nodes[1].cores = {{processors[1]}};
  ThreadPool pool(2, plan);
  std::vector<std::vector<int>> seen(2);
  pool.OnEachNode(1, [&](size_t node, size_t) { seen[node] = Allowed(); });
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{{processors[0]}, {processors[1]}}));
  EXPECT_EQ(Allowed(), processors) << "the caller is pinned for the round alone";
}

}  // namespace
}  // namespace quire::runner
