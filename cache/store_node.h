// The inside of a SnapshotStore. Private to this folder.
#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cache/snapshot_store.h"

namespace quire::cache {

struct Lease::Record : boost::intrusive::list_base_hook<> {
  SnapshotStore* store = nullptr;
  PrefixNode* node = nullptr;
  Position offset = 0;  // what is stood on
};

struct SnapshotStore::Tree {
  Tree(std::string key, bool lookahead) : isolation(std::move(key)), prefixes(lookahead) {}
  const std::string isolation;
  PrefixTree prefixes;
  uint64_t nodes_made = 0;
  uint64_t changes = 0;  // SnapshotStore::changes_ when it last changed
};

// A node's value; the root's has no snapshot. Evicting, leasing and merging it need no memory: it has all of
// it from the beginning.
struct SnapshotStore::StoreEntry : NodeValue {
  static constexpr size_t kGhosts = 16;

  explicit StoreEntry(Tree* of) : tree(of), place(NewPlace()) {}

  // Where a child was evicted of late, and its first key.
  struct Ghost {
    Position at;
    PrefixNode::Key key;
    bool operator==(const Ghost&) const = default;
  };
  // The latest ones, in order.
  class Ghosts {
   public:
    std::span<const Ghost> all() const { return std::span(ghosts_).first(size_); }
    size_t size() const { return size_; }
    void Add(Ghost ghost) {
      if (size_ == kGhosts) {
        std::shift_left(ghosts_.begin(), ghosts_.end(), 1);
        --size_;
      }
      ghosts_[size_++] = ghost;
    }
    void Clear() { size_ = 0; }

   private:
    std::array<Ghost, kGhosts> ghosts_ = {};
    size_t size_ = 0;
  };

  static EvictionQueue::node_type NewPlace() {
    EvictionQueue one;
    return one.extract(one.emplace(EvictionKey(), nullptr).first);
  }

  Tree* tree;
  Snapshot snapshot;
  uint64_t id = 0;
  uint64_t number = 0;  // among the nodes of its tree, from 1
  uint64_t last_use = 0;
  OwnerShares::Claim claim;
  // For views only: nothing depends on them.
  uint64_t hits = 0;
  std::chrono::steady_clock::time_point created = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point used = created;
  bool inserted = false;  // a snapshot was put here; else it is where an edge was split
  bool user_point = false;
  Position lost_at = 0;  // deepest offset inside the edge whose restore point was evicted
  Ghosts ghosts;
  boost::intrusive::list<Lease::Record> leases;
  int pins = 0;  // an operation is at work on it
  std::optional<EvictionKey> queued;
  EvictionQueue::node_type place;  // in the queue, while it is not there
};

inline SnapshotStore::StoreEntry& SnapshotStore::EntryOf(PrefixNode* node) {
  return static_cast<StoreEntry&>(*node->value);
}
inline const SnapshotStore::StoreEntry& SnapshotStore::EntryOf(const PrefixNode* node) {
  return static_cast<const StoreEntry&>(*node->value);
}

template <class Helpful>
PrefixNode* SnapshotStore::CheapestToLose(EvictionQueue::iterator* at, const Helpful& helps) {
  PrefixNode* cheapest = nullptr;
  double least = 0;
  int candidates = 0;
  for (auto next = *at; next != queue_.end() && candidates < kEvictionCandidates; ++next) {
    if (!helps(next->second)) continue;
    if (candidates++ == 0) *at = next;
    const double cost = CostOfLoss(next->second);
    if (cheapest != nullptr && cost >= least) continue;
    cheapest = next->second;
    least = cost;
  }
  return cheapest;
}

template <class Wanting, class Helpful>
bool SnapshotStore::EvictWhile(const Wanting& wanting, const Helpful& helps) {
  bool progress = true;
  OwnerShares::Spared spared;
  const auto accepts = [&](const PrefixNode* node) {
    return !OwnerShares::IsSpared(EntryOf(node).claim, spared) && helps(node);
  };
  while (wanting()) {
    if (progress) {
      spared = owners_.AllButLargest();
    } else if (spared.bytes_max == 0) {
      return false;
    } else {
      spared.bytes_max /= 2;
    }
    progress = false;
    auto at = queue_.begin();
    while (PrefixNode* node = wanting() ? CheapestToLose(&at, accepts) : nullptr) {
      // Nodes that are passed are passed once, not at every eviction.
      const bool passed = at != queue_.begin();
      const EvictionKey from = at->first;
      Evict(node);
      progress = true;
      if (spared.bytes_max > 0) {
        spared.bytes_max = std::min(spared.bytes_max, owners_.AllButLargest().bytes_max);
      }
      at = passed ? queue_.lower_bound(from) : queue_.begin();
    }
  }
  return true;
}

// Evicts until `missing_bytes` fits the budget; false when nothing more can be evicted. The missing bytes may
// grow when nodes that shared pages are evicted.
template <class Missing>
bool SnapshotStore::MakeRoom(const Missing& missing_bytes) {
  while (true) {
    const size_t missing = missing_bytes();
    if (missing > options_.budget_bytes) return false;
    if (bytes_.total() + missing <= options_.budget_bytes) return true;
    const auto over = [&] { return bytes_.total() + missing > options_.budget_bytes; };
    if (!EvictWhile(over, [](const PrefixNode*) { return true; })) return false;
  }
}

}  // namespace quire::cache
