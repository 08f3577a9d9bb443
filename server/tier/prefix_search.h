// The longest stored prefix of a prompt, on disk and in Redis.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "server/tier/disk_tier.h"
#include "server/tier/keys.h"
#include "server/tier/redis_tier.h"

namespace quire::server {

class PrefixSearch {
 public:
  // All outlive it. `redis` null: there is none, and `remote`, the same tokens with the cluster's secret, is
  // not used.
  PrefixSearch(const DiskTier& disk, RedisTier* redis, const KeyChain& local, const KeyChain& remote,
               bool needs_state)
      : disk_(disk), redis_(redis), local_(local), remote_(remote), needs_state_(needs_state) {}

  // Beyond `restorable`, given the KV of the first `matched` tokens; 0: none. Redis is asked where the disk
  // has less than all.
  int64_t Longest(int64_t matched, int64_t restorable);
  // The size of a segment's file or value; 0: there is none.
  uint64_t BytesOf(int64_t to, bool state) const;

 private:
  int64_t LongestOf(int64_t matched, int64_t restorable) const;
  void QueryRedis(int64_t restorable, int64_t missing);
  bool Has(int64_t to, bool state) const;

  const DiskTier& disk_;
  RedisTier* const redis_;
  const KeyChain& local_;
  const KeyChain& remote_;
  const bool needs_state_;
  std::unordered_map<SnapshotKey, uint64_t, SnapshotKeyHash> in_redis_;                // bytes by key
  std::unordered_map<SnapshotKey, std::vector<int64_t>, SnapshotKeyHash> redis_ends_;  // by parent
};

}  // namespace quire::server
