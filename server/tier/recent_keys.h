// Keys that were seen lately, the latest of them. One thread, or under a lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <unordered_map>

#include "server/tier/keys.h"

namespace quire::server {

class RecentKeys {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  RecentKeys(size_t keys_max, std::chrono::nanoseconds life) : keys_max_(keys_max), life_(life) {}

  bool Contains(const SnapshotKey& key, TimePoint now) const {
    const auto it = keys_.find(key);
    return it != keys_.end() && now - it->second.seen <= life_;
  }

  void Insert(const SnapshotKey& key, TimePoint now) {
    const auto [it, added] = keys_.try_emplace(key);
    if (!added) order_.erase(it->second.at);
    order_.push_back(key);
    it->second = {now, std::prev(order_.end())};
    if (keys_.size() <= keys_max_) return;
    keys_.erase(order_.front());
    order_.pop_front();
  }

  void Clear() {
    keys_.clear();
    order_.clear();
  }

  size_t size() const { return keys_.size(); }

 private:
  struct Entry {
    TimePoint seen = {};
    std::list<SnapshotKey>::iterator at = {};
  };

  size_t keys_max_;
  std::chrono::nanoseconds life_;
  std::unordered_map<SnapshotKey, Entry, SnapshotKeyHash> keys_;
  std::list<SnapshotKey> order_;  // oldest first
};

}  // namespace quire::server
