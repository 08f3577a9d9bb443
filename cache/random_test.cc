// Long random operation sequences over every layer mix, checked after each operation with a slow, obviously
// right model and every CheckInvariants(). 10^6 operations with pinned seeds;
// QUIRE_CACHE_RANDOM_OPS=100000000 runs 10^8 of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cache/testing/model_machine.h"

namespace quire::cache {
namespace {

constexpr uint64_t kDefaultOperations = 1'000'000;
constexpr uint64_t kOperationsPerWorld = 5'000;

uint64_t Operations() {
  const char* text = std::getenv("QUIRE_CACHE_RANDOM_OPS");
  return text == nullptr ? kDefaultOperations : std::strtoull(text, nullptr, 10);
}

class RandomOperations : public testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Mixes, RandomOperations, testing::Range<size_t>(0, MachineMixes()),
                         [](const auto& mix) { return MachineMixName(mix.param); });

TEST_P(RandomOperations, AgreeWithTheSlowModelAndKeepEveryInvariant) {
  const size_t mix = GetParam();
  const uint64_t operations = Operations() / MachineMixes();
  Machine::Coverage seen;
  uint64_t done = 0;
  for (uint64_t world = 0; done < operations; ++world) {
    const uint64_t seed = world * MachineMixes() + mix + 1;
    Machine machine(mix, Choices(seed * 0x9e3779b97f4a7c15U));
    for (uint64_t op = 0; op < kOperationsPerWorld && done < operations; ++op, ++done) {
      const std::string wrong = machine.Step();
      ASSERT_EQ(wrong, "") << "world " << world << " operation " << op << " (" << machine.last_operation()
                           << ")";
    }
    const Machine::Coverage now = machine.coverage();
    seen.appends += now.appends;
    seen.out_of_memory += now.out_of_memory;
    seen.cancels += now.cancels;
    seen.forks += now.forks;
    seen.truncates += now.truncates;
    seen.refusals += now.refusals;
    seen.restores += now.restores;
    seen.splits += now.splits;
    seen.merges += now.merges;
    seen.captures += now.captures;
    seen.drafts += now.drafts;
    seen.replays += now.replays;
    seen.removals += now.removals;
    seen.inserts += now.inserts;
    seen.hits += now.hits;
    seen.evictions += now.evictions;
    seen.reclaims += now.reclaims;
    seen.imports += now.imports;
  }
  fmt::print(
      "{}: {} operations: {} appends, {} out of memory, {} cancels, {} forks, {} truncates, {} refusals, {} "
      "restores, {} "
      "splits, {} merges, {} captures, {} drafts, {} replays, {} removals, {} inserts, {} hits, {} "
      "evictions, {} reclaims, {} imports\n",
      MachineMixName(mix), done, seen.appends, seen.out_of_memory, seen.cancels, seen.forks, seen.truncates,
      seen.refusals, seen.restores, seen.splits, seen.merges, seen.captures, seen.drafts, seen.replays,
      seen.removals, seen.inserts, seen.hits, seen.evictions, seen.reclaims, seen.imports);
  for (const uint64_t count : {seen.appends, seen.out_of_memory, seen.cancels, seen.forks, seen.truncates,
                               seen.restores, seen.splits, seen.merges, seen.captures, seen.drafts,
                               seen.inserts, seen.hits, seen.evictions, seen.reclaims, seen.imports}) {
    EXPECT_GT(count, operations / 5000) << "an operation that hardly ever happens shows nothing";
  }
}

}  // namespace
}  // namespace quire::cache
