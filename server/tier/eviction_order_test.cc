#include "server/tier/eviction_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace quire::server {
namespace {

constexpr uint64_t kMinute = 60'000'000'000;
constexpr uint64_t kHour = 60 * kMinute;
constexpr uint64_t kNow = 1000 * kHour;

class EvictionOrders : public testing::Test {
 protected:
  void Add(const std::string& owner, const std::string& name, uint64_t minutes_unused, uint64_t bytes = 100) {
    const EvictionOrder::Segment segment{HashOf(name), 4, kNow - minutes_unused * kMinute, bytes};
    order_.Add(owner, segment);
    added_[segment.key] = {owner, name, segment};
  }
  // The names of what leaves, until this many bytes are left.
  std::vector<std::string> EvictTo(uint64_t bytes) {
    std::vector<std::string> names;
    while (true) {
      uint64_t left = 0;
      for (const auto& [key, one] : added_) left += one.segment.disk_bytes;
      if (left <= bytes) return names;
      const auto key = order_.Next(kNow);
      if (!key) return names;
      const Added one = added_.at(*key);
      added_.erase(*key);
      order_.Remove(one.owner, one.segment);
      names.push_back(one.name);
    }
  }

 private:
  struct Added {
    std::string owner, name;
    EvictionOrder::Segment segment;
  };
  EvictionOrder order_;
  std::map<SnapshotKey, Added> added_;
};

TEST_F(EvictionOrders, WhoFillsTheTierEvictsItsOwn) {
  Add("quiet", "chat", 600);
  for (uint64_t i = 0; i < 20; ++i) Add("flood", fmt::format("flood {}", i), 20 - i);
  const auto evicted = EvictTo(200);
  ASSERT_EQ(evicted.size(), 19u);
  EXPECT_EQ(evicted.front(), "flood 0");
  EXPECT_EQ(evicted.back(), "flood 18");
}

TEST_F(EvictionOrders, EqualOwnersKeepEqualParts) {
  for (uint64_t i = 0; i < 10; ++i) {
    Add("first", fmt::format("first {}", i), 100 - i);
    Add("second", fmt::format("second {}", i), 50 - i);
  }
  std::map<char, int> evicted;
  for (const std::string& name : EvictTo(1000)) ++evicted[name.front()];
  EXPECT_EQ(evicted['f'], 5);
  EXPECT_EQ(evicted['s'], 5);
}

TEST_F(EvictionOrders, WhatNobodyUsesLeavesFirst) {
  Add("gone", "old", 24 * 60 + 1);
  Add("gone", "young", 24 * 60 - 1);
  for (uint64_t i = 0; i < 5; ++i) Add("here", fmt::format("here {}", i), 20 - i);
  EXPECT_EQ(EvictTo(500), (std::vector<std::string>{"old", "here 0"}));
}

TEST_F(EvictionOrders, AnOwnerAloneHasThemInTheOrderOfUse) {
  for (const uint64_t minutes : {3, 5, 1, 4}) Add("", fmt::format("{}", minutes), minutes);
  EXPECT_EQ(EvictTo(0), (std::vector<std::string>{"5", "4", "3", "1"}));
}

}  // namespace
}  // namespace quire::server
