#include "runner/kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace quire::runner {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnceAndTheirWritesAreVisible) {
  ThreadPool pool(GetParam());
  for (size_t tasks : {0U, 1U, 2U, 3U, 17U, 1000U}) {
    std::vector<int> runs(tasks, 0);  // no atomics: each task owns its element
    pool.ParallelFor(tasks, [&](size_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(tasks, 1)) << tasks << " tasks";
  }
}

TEST_P(ThreadPoolTest, ManyRoundsBackToBack) {
  ThreadPool pool(GetParam());
  std::atomic<uint64_t> sum{0};
  uint64_t expected = 0;
  for (uint64_t round = 0; round < 20'000; ++round) {
    const size_t tasks = 1 + round % 5;
    pool.ParallelFor(tasks, [&](size_t i) { sum.fetch_add(round + i, std::memory_order_relaxed); });
    for (size_t i = 0; i < tasks; ++i) expected += round + i;
  }
  EXPECT_EQ(sum.load(), expected);
}

TEST_P(ThreadPoolTest, StopsWithoutEverWorking) { ThreadPool pool(GetParam()); }

TEST_P(ThreadPoolTest, ATaskMayWaitForAnother) {
  ThreadPool pool(GetParam());
  if (pool.threads() < 2) GTEST_SKIP() << "one thread runs tasks one after the other";
  std::atomic<bool> second_began{false};
  pool.ParallelFor(2, [&](size_t i) {
    if (i == 1) {
      second_began.store(true);
      second_began.notify_all();
    } else {
      second_began.wait(false);
    }
  });
  EXPECT_TRUE(second_began.load());
}

// Two nodes of one and two cores that no thread is pinned to.
NumaPlan TwoNodes() {
  NumaPlan plan;
  plan.nodes.resize(2);
  plan.nodes[0].cores.resize(1);
  plan.nodes[1].cores.resize(2);
  return plan;
}

TEST_P(ThreadPoolTest, EveryNodeDoesItsTasksItself) {
  ThreadPool pool(GetParam(), TwoNodes());
  for (const size_t tasks : {0U, 1U, 5U, 100U}) {
    std::vector<int> runs(2 * tasks, 0), strange(2 * tasks, 0);
    pool.OnEachNode(tasks, [&](size_t node, size_t i) {
      ++runs[node * tasks + i];
      strange[node * tasks + i] = node == NodeOfThisThread() ? 0 : 1;
    });
    EXPECT_EQ(runs, std::vector<int>(2 * tasks, 1)) << tasks << " tasks";
    if (pool.threads() < 3) continue;  // not a thread for each core
    EXPECT_EQ(strange, std::vector<int>(2 * tasks, 0)) << tasks << " tasks";
  }
}

TEST(ThreadPool, TheCallerIsOnTheNodeOfItsPlace) {
  std::thread([] {
    for (const int threads : {1, 2, 3, 8}) {
      const ThreadPool pool(threads, TwoNodes());
      SetNodeOfThisThread(7);
      pool.PinCaller();
      EXPECT_EQ(NodeOfThisThread(), 0U) << threads << " threads";
    }
  }).join();
}

TEST_P(ThreadPoolTest, RoundsOfBothKindsInTurn) {
  ThreadPool pool(GetParam(), TwoNodes());
  std::atomic<uint64_t> sum{0};
  uint64_t expected = 0;
  for (uint64_t round = 0; round < 5'000; ++round) {
    const size_t tasks = 1 + round % 70;
    pool.ParallelFor(tasks, [&](size_t i) { sum.fetch_add(i, std::memory_order_relaxed); });
    pool.OnEachNode(tasks, [&](size_t node, size_t i) {
      sum.fetch_add(1000 * (node + 1) + i, std::memory_order_relaxed);
    });
    expected += 3 * tasks * (tasks - 1) / 2 + 3000 * tasks;
  }
  EXPECT_EQ(sum.load(), expected);
}

TEST(ThreadPool, HasGroupsOfSixteenAtMost) {
  EXPECT_EQ(ThreadPool(16).groups(), 1U);
  EXPECT_EQ(ThreadPool(17).groups(), 2U);
  EXPECT_EQ(ThreadPool(64).groups(), 4U);
  EXPECT_EQ(ThreadPool(48, TwoNodes()).groups(), 3U);
}

TEST(ThreadPool, FewTasksWakeFewGroups) {
  ThreadPool pool(64);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(16, [&](size_t) {
      const std::scoped_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(seen.size(), 16U);
}

TEST(ThreadPool, CountsTheCaller) {
  EXPECT_EQ(ThreadPool(-3).threads(), 1);
  EXPECT_EQ(ThreadPool(0).threads(), 1);
  EXPECT_EQ(ThreadPool(1).threads(), 1);
  EXPECT_EQ(ThreadPool(3).threads(), 3);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8, 17, 64));

}  // namespace
}  // namespace quire::runner
