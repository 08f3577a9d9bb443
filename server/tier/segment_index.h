// The segments that a tier has, in memory: by key, by prefix, by last use. Not thread-safe.
//
// Invariants
// - Every entry but the first of a prefix names the segment that it follows; a prefix is complete when that
//   chain reaches a first one.
// - A segment's owner is its prefix's; that of one behind a missing one is not known, and counts as no
//   tenant's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/tier/eviction_order.h"
#include "server/tier/keys.h"
#include "server/tier/segment_file.h"

namespace quire::server {

// A complete prefix that can be restored.
struct StoredPrefix {
  SnapshotKey id{};  // key of its last segment
  PrefixOrigin origin;
  int64_t tokens = 0;
  uint64_t segments = 0;
  uint64_t bytes = 0;    // of its files, those that it shares with others too
  uint64_t hits = 0;     // restored so often since the tier was opened
  uint64_t used_ns = 0;  // since 1970
};

class SegmentIndex {
 public:
  // Whose segments are: tenants', where a tenant is an API key that was checked. Else anybody could be many
  // owners.
  enum class Owners : uint8_t { kOne, kTenants };
  explicit SegmentIndex(Owners owners) : owners_(owners) {}

  struct Entry {
    StoredSegment segment;
    SnapshotKey before{};  // the segment that it follows; unused where it begins its prefix
    std::string owner = {};
    uint64_t used_ns = 0;
    uint64_t hits = 0;
    uint64_t disk_bytes = 0;
  };
  // What one takes here, with its part of all containers and what reading a folder needs beside.
  static constexpr uint64_t kEntryBytes = 768;

  // Called with each segment that came (true) or went, after the change; calls nothing of the index.
  using Observer = std::function<void(const SnapshotKey& key, bool stored)>;
  void SetObserver(Observer observer) { observer_ = std::move(observer); }

  // Replaces what has its key. `origin`: of segments that begin a prefix. `disk_bytes`: what its file takes,
  // if that is more than StoredSegment::disk_bytes().
  void Add(const StoredSegment& segment, const PrefixOrigin* origin, uint64_t used_ns,
           uint64_t disk_bytes = 0) noexcept;
  bool Drop(const SnapshotKey& key);
  // Null: there is none. Valid until the next change.
  const Entry* Find(const SnapshotKey& key) const;
  // Where token segments end that begin behind this prefix, each once.
  std::vector<int64_t> EndsBehind(const SnapshotKey& parent) const;
  void Touch(const SnapshotKey& key, uint64_t used_ns);
  void CountHit(const SnapshotKey& key);
  // Evicted next.
  std::optional<SnapshotKey> NextToEvict(uint64_t now_ns,
                                         EvictionOrder::Scarce scarce = EvictionOrder::Scarce::kBytes) const {
    return order_.Next(now_ns, scarce);
  }
  uint64_t bytes() const { return bytes_; }  // on disk
  uint64_t memory_bytes() const { return entries_.size() * kEntryBytes + origin_bytes_; }
  uint64_t files() const { return entries_.size(); }

  // The ends of prefixes; where a prefix needs a state, each one that has it. The last used one is first.
  std::vector<StoredPrefix> Prefixes() const;
  std::optional<StoredPrefix> PrefixOf(const SnapshotKey& id) const;
  // The origin of the prefix that the segment ends; null: it is not complete. Valid until the next change.
  const PrefixOrigin* OriginOf(const SnapshotKey& id) const;
  // From the first one on; empty: the prefix is not complete.
  std::vector<SnapshotKey> SegmentsOf(const SnapshotKey& id) const;
  // The segments of a prefix that no other needs, its end first.
  std::vector<SnapshotKey> OnlyOf(const SnapshotKey& id) const;

 private:
  struct OriginUse {
    PrefixOrigin origin;
    uint64_t segments = 0;
    uint64_t bytes = 0;
  };

  static EvictionOrder::Segment OrderOf(const Entry& entry) {
    return {entry.segment.key, entry.segment.to, entry.used_ns, entry.disk_bytes};
  }
  std::string OwnerOf(const Entry& entry, const PrefixOrigin* origin) const;

  const Owners owners_;
  uint64_t Followers(const SnapshotKey& key) const;
  const PrefixOrigin* OriginBehind(const std::vector<SnapshotKey>& segments) const;

  std::unordered_map<SnapshotKey, Entry, SnapshotKeyHash> entries_;
  std::unordered_map<SnapshotKey, std::multiset<int64_t>, SnapshotKeyHash> ends_;  // by parent
  std::unordered_map<SnapshotKey, uint64_t, SnapshotKeyHash> followers_;  // by the segment they follow
  std::unordered_map<SnapshotKey, OriginUse, SnapshotKeyHash> origins_;   // by parent
  EvictionOrder order_;
  uint64_t bytes_ = 0;
  uint64_t origin_bytes_ = 0;
  Observer observer_;
};

}  // namespace quire::server
