#include "runner/kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
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

TEST(ThreadPool, CountsTheCaller) {
  EXPECT_EQ(ThreadPool(-3).threads(), 1);
  EXPECT_EQ(ThreadPool(0).threads(), 1);
  EXPECT_EQ(ThreadPool(1).threads(), 1);
  EXPECT_EQ(ThreadPool(3).threads(), 3);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace quire::runner
