// A persistent map from page index (position / page_tokens) to page: copying it shares its structure.
//
// A radix tree of fixed fan-out over the page index. Nodes carry reference counts; a leaf holds one reference
// to each of its pages. Every change copies only the shared nodes on its path, so copying, cutting and
// joining tables cost O(log pages) whatever their length, and nodes that nobody shares are changed in place.
//
// Put, Clip and Join throw std::bad_alloc, changing nothing. After ReserveClip, or of a table whose nodes on
// the path nobody shares, Clip does not.
//
// Invariants
// - A page is exclusive to a table exactly if every node above it and the page itself have one reference.
// - No node is empty; indices outside the tree are absent.
// Engine thread only. The pool outlives the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cache/page_pool.h"

namespace quire::cache {

class PageTable {
 public:
  PageTable() = default;
  explicit PageTable(BlockPool* pool) : pool_(pool) {}
  PageTable(const PageTable& other);
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable other) noexcept;
  ~PageTable();

  bool empty() const { return root_ == nullptr; }
  BlockId Get(int64_t index) const;     // kNoBlock when absent
  bool Exclusive(int64_t index) const;  // REQUIRES: present

  // Takes over one reference to `page`, also when it throws; what was at the index is released.
  void Put(int64_t index, BlockId page);
  // Keeps indices in [from, to) only.
  void Clip(int64_t from, int64_t to);
  void ReserveClip(int64_t from, int64_t to) const;  // the nodes for Clip(from, to)
  // Nodes that one Clip of this table, or of a copy of it, takes at most.
  size_t ClipNodesMax() const;
  // Nodes that Put at each index in [from, to) takes at most together.
  size_t PutNodesMax(int64_t from, int64_t to) const;
  // Indices below `index` from `head`, the others from `tail`. REQUIRES: both of one pool.
  static PageTable Join(const PageTable& head, const PageTable& tail, int64_t index);

  // Present pages with an index in [from, to), ascending.
  std::vector<BlockId> Pages(int64_t from, int64_t to) const;
  void ForEach(int64_t from, int64_t to, const std::function<void(int64_t, BlockId)>& visit) const;

  struct Node;
  // For invariant checks: `first_visit` returns whether a node is new to the caller; of every leaf that is,
  // `leaf_page` is called once per page.
  struct Auditor {
    std::function<bool(const Node*)> first_visit;
    std::function<void(BlockId)> leaf_page;
  };
  void Audit(const Auditor& auditor) const;

 private:
  void GrowTo(int level);
  size_t PutNodes(int64_t index) const;

  BlockPool* pool_ = nullptr;
  Node* root_ = nullptr;
};

}  // namespace quire::cache
