// Fixed-size blocks with reference counts: the pages of one attention group, or the state slots of a model.
//
// Invariants
// - A block is free (references 0, on a free list or never used) or held (references >= 1).
// - Any free block serves any request of its pool, so no history of frees can strand capacity.
// - Pools that share a MemoryBudget never hold, nor keep resident, more bytes than it has: when one pool
//   grows, blocks that others have freed are given back to the system first. (The system takes whole pages of
//   its own back: of blocks below 64 KiB those that lie inside a block; larger ones begin at such a page.)
// - A release needs no memory: the lists of free blocks have room for every block used so far.
// Address space is reserved at once, memory is taken at a block's first use.
// Engine thread only; compute threads may read and write the bytes of blocks that they were handed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <vector>

#include "cache/node_stock.h"
#include "cache/types.h"

namespace quire::cache {

using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = UINT32_MAX;

class BlockPool;

// One byte budget of several pools; outlives them. Engine thread only.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t capacity_bytes) : capacity_(capacity_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }          // bytes of held blocks
  size_t resident() const { return resident_; }  // bytes of held blocks and of freed ones not yet given back
  size_t left() const { return capacity_ - used_; }

 private:
  friend class BlockPool;
  void MakeResident(size_t bytes);

  size_t capacity_;
  size_t used_ = 0;
  size_t resident_ = 0;
  std::vector<BlockPool*> pools_;
};

class BlockPool {
 public:
  // `name` appears in errors. `budget` outlives the pool. kOutOfPages when address space cannot be reserved.
  static Result<std::unique_ptr<BlockPool>> Create(std::string name, size_t block_bytes, uint32_t blocks,
                                                   MemoryBudget* budget);
  ~BlockPool();  // REQUIRES: no block is held
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  const std::string& name() const { return name_; }
  size_t block_bytes() const { return block_bytes_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t used() const { return used_; }
  size_t blocks_seen() const { return references_.size(); }  // ids of blocks used so far are below it
  uint32_t available() const;                                // blocks that Allocate() would give now

  // One reference to a block of unspecified content, or kNoBlock when none is available. Throws
  // std::bad_alloc, changing nothing, where its own books have no memory.
  BlockId Allocate();
  void AddReference(BlockId block);
  void Release(BlockId block);  // the last one frees; debug builds then poison the bytes
  uint32_t references(BlockId block) const { return references_[block]; }

  std::byte* data(BlockId block) { return base_ + size_t{block} * stride_; }
  const std::byte* data(BlockId block) const { return base_ + size_t{block} * stride_; }

  NodeStock& nodes() { return nodes_; }  // for the page tables of these blocks

  // Gives the memory of free blocks back to the system, and that of spare nodes to the heap.
  void ReleaseFree();

  // Reference counts must equal `expected` (indexed by block; missing entries count as 0).
  std::expected<void, std::string> CheckInvariants(const std::vector<uint32_t>& expected) const;

 private:
  friend class MemoryBudget;
  BlockPool(std::string name, size_t block_bytes, size_t stride, uint32_t blocks, std::byte* base,
            MemoryBudget* budget);
  bool ReleaseOneFree();
  void ReserveLists();

  const std::string name_;
  const size_t block_bytes_;
  const size_t stride_;
  const uint32_t capacity_;
  std::byte* const base_;
  MemoryBudget* const budget_;
  uint32_t used_ = 0;
  std::vector<uint32_t> references_;  // of blocks used so far
  std::vector<BlockId> warm_;         // free, memory still resident; last freed is last
  std::vector<BlockId> cold_;         // free, memory given back
  NodeStock nodes_;
};

}  // namespace quire::cache
