// Bytes that the nodes of a store reference, each page and slot counted once.
//
// A node counts the full-attention pages that its range [from, to) touches, its window pages and its slot.
// The page in which two neighbors meet may be one or two; it is counted as what it is. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/page_pool.h"
#include "cache/snapshot.h"

namespace quire::cache {

class StoreAccounting {
 public:
  explicit StoreAccounting(const HybridCache& cache);

  // Memory to count every page and slot that was ever in use until now: with it, no call below needs any.
  // Throws std::bad_alloc.
  void Reserve();

  // A new or removed leaf: everything its range counts. Linear in its pages.
  void Add(const Snapshot& leaf);
  void Remove(const Snapshot& leaf);
  // Bytes that Add would add to total().
  size_t Missing(const Snapshot& leaf) const;

  // After a split, and before a merge: what the upper half counts beside the lower one.
  void AddUpper(const Snapshot& upper);
  void RemoveUpper(const Snapshot& upper);
  // Windows and slot only.
  void AddState(const Snapshot& snapshot);
  void RemoveState(const Snapshot& snapshot);
  size_t MissingState(const Snapshot& snapshot) const;

  // What one node counts; `shared`: of that, in other nodes too. Linear in its pages.
  struct Bytes {
    size_t full = 0;    // full-attention pages
    size_t window = 0;  // window pages
    size_t slot = 0;
    size_t shared = 0;
  };
  Bytes BytesOf(const Snapshot& snapshot) const;
  // Bytes of a snapshot's window pages and slot, shared or not. REQUIRES: not empty.
  size_t StateBytes(const Snapshot& snapshot) const;

  size_t total() const { return full_ + window_ + slots_; }
  size_t peak() const { return peak_; }      // the highest total() ever
  size_t full() const { return full_; }      // full-attention pages
  size_t window() const { return window_; }  // window pages
  size_t slots() const { return slots_; }
  size_t shared() const { return shared_; }  // what nodes would hold more if nothing were shared between them

  bool operator==(const StoreAccounting& other) const;

 private:
  struct Part {
    size_t pool;  // group, then slots, then stored slots
    BlockId block;
  };
  // Visits what a snapshot's range, the page in which it ends, its windows and its slot are.
  template <class Visit>
  void Range(const Snapshot& snapshot, const Visit& visit) const;
  template <class Visit>
  void Boundary(const Snapshot& snapshot, const Visit& visit) const;
  template <class Visit>
  void State(const Snapshot& snapshot, const Visit& visit) const;
  void Count(Part part);
  void Uncount(Part part);
  size_t MissingBytes(Part part) const;
  size_t BlockBytes(size_t pool) const;
  size_t& Kind(size_t pool);

  const Pools* pools_;
  std::vector<std::vector<uint32_t>> counts_;  // [groups + 2][block]
  size_t full_ = 0;
  size_t window_ = 0;
  size_t slots_ = 0;
  size_t shared_ = 0;
  size_t peak_ = 0;
};

}  // namespace quire::cache
