// Linked with counted_memory.cc.
#include "runner/work/work_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Whether a block of this size can be allocated.
bool Allocates(size_t bytes) {
  try {
    std::vector<char>().reserve(bytes);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST(WorkMemory, WithoutOneNothingIsRefused) { EXPECT_TRUE(Allocates(64 * kMiB)); }

TEST(WorkMemory, RefusesABlockThatExceedsIt) {
  const WorkMemory memory(kMiB);
  EXPECT_TRUE(Allocates(kMiB / 2));
  EXPECT_FALSE(memory.exceeded());
  EXPECT_FALSE(Allocates(kMiB + 1));
  EXPECT_TRUE(memory.exceeded());
}

TEST(WorkMemory, RefusesManySmallBlocks) {
  const WorkMemory memory(kMiB);
  std::vector<std::unique_ptr<std::string>> texts;
  texts.reserve(10'000);
  EXPECT_THROW(while (texts.size() < 10'000) texts.push_back(std::make_unique<std::string>(200, 'x')),
               std::bad_alloc);
  EXPECT_GT(texts.size(), 2000U);
  EXPECT_LT(texts.size(), kMiB / 200);
  texts.clear();
  EXPECT_TRUE(Allocates(kMiB / 2));
}

TEST(WorkMemory, CountsWhatIsThereAtOneTime) {
  const WorkMemory memory(kMiB);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Allocates(kMiB / 2));
  EXPECT_GE(memory.peak(), kMiB / 2);
  EXPECT_LT(memory.peak(), kMiB);
  EXPECT_FALSE(memory.exceeded());
}

TEST(WorkMemory, CountsEveryFormOfNew) {
  struct alignas(64) Aligned {
    char bytes[4096];
  };
  const WorkMemory memory(10 * kMiB);
  auto counts = [&memory, last = size_t{0}]() mutable {
    const size_t before = std::exchange(last, memory.peak());
    return last >= before + 4096;
  };
  const auto plain = std::make_unique<char[]>(4096);
  EXPECT_TRUE(counts());
  const auto aligned = std::make_unique<Aligned>();
  EXPECT_TRUE(counts());
  const auto aligned_array = std::make_unique<Aligned[]>(2);
  EXPECT_TRUE(counts());
  const std::unique_ptr<char[]> nothrow(new (std::nothrow) char[4096]);
  EXPECT_TRUE(counts());
  std::string text;  // the standard library's own code allocates
  text.append(4096, 'x');
  EXPECT_TRUE(counts());
  EXPECT_EQ(new (std::nothrow) char[11 * kMiB], nullptr);
}

TEST(WorkMemory, AnInnerOneAddsItsBound) {
  const WorkMemory outer(4 * kMiB);
  {
    const WorkMemory inner(kMiB);
    EXPECT_FALSE(Allocates(2 * kMiB));
    EXPECT_TRUE(inner.exceeded());
  }
  EXPECT_FALSE(outer.exceeded());
  EXPECT_TRUE(Allocates(2 * kMiB));
  const WorkMemory wider(16 * kMiB);
  EXPECT_FALSE(Allocates(8 * kMiB));
  EXPECT_FALSE(wider.exceeded());
  EXPECT_TRUE(outer.exceeded());
}

TEST(WorkMemory, MemoryOfAnInnerOneStaysCounted) {
  const WorkMemory outer(4 * kMiB);
  std::vector<char> kept;
  {
    const WorkMemory inner(3 * kMiB);
    kept.reserve(2 * kMiB);
  }
  EXPECT_FALSE(Allocates(3 * kMiB));
  std::vector<char>().swap(kept);
  EXPECT_TRUE(Allocates(3 * kMiB));
}

TEST(WorkMemory, WhatNobodyChoseDoesNotCount) {
  const std::atomic<bool> canceled = false;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  const WorkMemory memory(kMiB);
  std::vector<char> kept;
  {
    const WorkBudget::Exempt exempt;
    kept.reserve(2 * kMiB);
  }
  EXPECT_FALSE(memory.exceeded());
  EXPECT_FALSE(Allocates(2 * kMiB));
}

TEST(WorkMemory, OtherThreadsAreNotBound) {
  const WorkMemory memory(kMiB);
  std::jthread([] { EXPECT_TRUE(Allocates(2 * kMiB)); }).join();
  EXPECT_FALSE(memory.exceeded());
}

}  // namespace
}  // namespace quire::runner
