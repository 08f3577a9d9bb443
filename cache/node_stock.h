// Memory for the nodes of the page tables of one pool, held in stock so that a change that has begun cannot
// lack it.
//
// An operation reserves the nodes that it needs while it can still fail; to take them cannot. A NodePromise
// keeps nodes for an operation that comes later and must not fail, whatever is reserved and taken in between.
// Engine thread only.
#pragma once

#include <cstddef>

namespace quire::cache {

class NodeStock {
 public:
  static constexpr size_t kNodeBytes = 136;

  NodeStock() = default;
  ~NodeStock();
  NodeStock(const NodeStock&) = delete;
  NodeStock& operator=(const NodeStock&) = delete;

  // Has at least `nodes` beside those promised, or throws std::bad_alloc.
  void Reserve(size_t nodes);
  void* Take() noexcept;  // uninitialized. REQUIRES: reserved
  void Give(void* node) noexcept;
  void ReleaseFree() noexcept;  // all but those promised

 private:
  friend class NodePromise;
  struct Free {
    Free* next;
  };
  static constexpr size_t kKept = 64;  // beside those promised; others go back to the heap

  Free* free_ = nullptr;
  size_t size_ = 0;
  size_t promised_ = 0;
};

// Nodes that are held back until it is destroyed; then they may be taken. Move-only; outlived by its stock.
class NodePromise {
 public:
  NodePromise(NodeStock& stock, size_t nodes);  // throws std::bad_alloc
  NodePromise(NodePromise&& other) noexcept;
  NodePromise& operator=(NodePromise&& other) noexcept;
  ~NodePromise();

 private:
  NodeStock* stock_;
  size_t nodes_;
};

}  // namespace quire::cache
