// The cache when an allocation fails, for each allocation of each operation of the random machine
// (cache/testing): the operation says so, and every sequence, snapshot and node of the store is as it was.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "cache/testing/model_machine.h"
#include "tests/faults/every_allocation.h"

namespace quire::faults {
namespace {

constexpr uint64_t kOperations = 1'500;  // of each mix of layer kinds; QUIRE_CACHE_FAULT_OPS
constexpr uint64_t kOperationsPerWorld = 500;

class MachineFaults final : public cache::AllocationFaults {
 public:
  void Start(int64_t point, bool all) override {
    failed_ = Faults().allocations_failed;
    Faults().allocation_repeats = all ? std::numeric_limits<int64_t>::max() : 0;
    Faults().allocation_countdown = point;
  }
  bool Stop() override {
    Suspend();
    Faults().allocation_repeats = 0;
    return Faults().allocations_failed != failed_;
  }
  void Suspend() override { countdown_ = Faults().allocation_countdown.exchange(0); }
  void Resume() override { Faults().allocation_countdown = countdown_; }

 private:
  int64_t failed_ = 0;
  int64_t countdown_ = 0;
};

class CacheAllocations : public testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Mixes, CacheAllocations, testing::Range<size_t>(0, cache::MachineMixes()),
                         [](const auto& mix) { return cache::MachineMixName(mix.param); });

TEST_P(CacheAllocations, AFailureChangesNothingAndLeaksNothing) {
  const char* const wanted = std::getenv("QUIRE_CACHE_FAULT_OPS");
  const uint64_t operations = wanted == nullptr ? kOperations : std::strtoull(wanted, nullptr, 10);
  MachineFaults faults;
  uint64_t failures = 0;
  for (uint64_t done = 0, world = 0; done < operations; ++world) {
    const int64_t live = LiveAllocations();
    {
      const cache::Choices choices((world * cache::MachineMixes() + GetParam() + 1) * 0x9e3779b97f4a7c15U);
      cache::Machine machine(GetParam(), choices, &faults);
      for (uint64_t op = 0; op < kOperationsPerWorld && done < operations; ++op, ++done) {
        const std::string wrong = machine.Step();
        ASSERT_EQ(wrong, "") << "world " << world << " operation " << op << " (" << machine.last_operation()
                             << ")";
      }
      failures += machine.coverage().failed_allocations;
    }
    ASSERT_EQ(LiveAllocations(), live) << "world " << world << " left allocations behind";
  }
  fmt::print("{}: {} operations, {} failed allocations\n", cache::MachineMixName(GetParam()), operations,
             failures);
  EXPECT_GT(failures, operations / 2);
}

TEST(FailingAllocations, CreatingACache) {
  const auto create = [] {
    const auto cache = cache::HybridCache::Create({.groups = {{.layers = 2, .kv_heads = 1, .head_dim = 32}},
                                                   .recurrent = {{.conv_tail = 3, .conv_dim = 8}}},
                                                  {.bytes = 1 << 20});
    EXPECT_TRUE(cache || cache.error().code == cache::ErrorCode::kOutOfMemory);
  };
  EXPECT_GT(FailEveryAllocation(create), 5);
}

}  // namespace
}  // namespace quire::faults
