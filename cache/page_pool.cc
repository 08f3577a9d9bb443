#include "cache/page_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cache/check.h"

namespace quire::cache {
namespace {

constexpr size_t kPageAlign = 64;
// From this size on blocks start at their own system page, so that freed memory can be given back whole.
constexpr size_t kSystemAlignFrom = size_t{64} << 10;
constexpr int kPoison = 0xDB;
constexpr size_t kBlocksFirst = 64;  // that the lists of a pool have room for at its first block

size_t SystemPage() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void MemoryBudget::MakeResident(size_t bytes) {
  for (BlockPool* pool : pools_) {
    while (resident_ + bytes > capacity_ && pool->ReleaseOneFree()) {
    }
  }
  resident_ += bytes;
}

Result<std::unique_ptr<BlockPool>> BlockPool::Create(std::string name, size_t block_bytes, uint32_t blocks,
                                                     MemoryBudget* budget) {
  const size_t stride = RoundUp(block_bytes, block_bytes >= kSystemAlignFrom ? SystemPage() : kPageAlign);
  size_t bytes = 0;
  if (blocks == kNoBlock || __builtin_mul_overflow(stride, size_t{blocks}, &bytes)) {
    return std::unexpected(Error{ErrorCode::kOutOfPages, fmt::format("{}: capacity overflows", name)});
  }
  std::byte* base = nullptr;
  if (bytes > 0) {
    void* mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      return std::unexpected(Error{ErrorCode::kOutOfPages, fmt::format("{}: cannot reserve {} bytes: {}",
                                                                       name, bytes, std::strerror(errno))});
    }
    base = static_cast<std::byte*>(mapped);
  }
  try {
    return std::unique_ptr<BlockPool>(
        new BlockPool(std::move(name), block_bytes, stride, blocks, base, budget));
  } catch (const std::bad_alloc&) {
    if (base != nullptr) munmap(base, bytes);
    throw;
  }
}

BlockPool::BlockPool(std::string name, size_t block_bytes, size_t stride, uint32_t blocks, std::byte* base,
                     MemoryBudget* budget)
    : name_(std::move(name)),
      block_bytes_(block_bytes),
      stride_(stride),
      capacity_(blocks),
      base_(base),
      budget_(budget) {
  budget_->pools_.push_back(this);
}

BlockPool::~BlockPool() {
  QUIRE_CACHE_CHECK(used_ == 0);
  budget_->resident_ -= warm_.size() * block_bytes_;
  std::erase(budget_->pools_, this);
  if (base_ != nullptr) munmap(base_, stride_ * capacity_);
}

uint32_t BlockPool::available() const {
  const size_t by_budget = block_bytes_ == 0 ? SIZE_MAX : budget_->left() / block_bytes_;
  return static_cast<uint32_t>(std::min<size_t>(capacity_ - used_, by_budget));
}

// A block that is used for the first time must have a place in every list that it may be in.
void BlockPool::ReserveLists() {
  const size_t used = references_.size();
  if (used < std::min({references_.capacity(), warm_.capacity(), cold_.capacity()})) return;
  const size_t next = std::max(kBlocksFirst, 2 * used);
  references_.reserve(next);
  warm_.reserve(next);
  cold_.reserve(next);
}

BlockId BlockPool::Allocate() {
  if (available() == 0) return kNoBlock;
  BlockId block = kNoBlock;
  if (!warm_.empty()) {
    block = warm_.back();
    warm_.pop_back();
  } else {
    if (cold_.empty()) ReserveLists();
    budget_->MakeResident(block_bytes_);
    if (!cold_.empty()) {
      block = cold_.back();
      cold_.pop_back();
    } else {
      block = static_cast<BlockId>(references_.size());
      references_.push_back(0);
    }
  }
  references_[block] = 1;
  ++used_;
  budget_->used_ += block_bytes_;
  return block;
}

void BlockPool::AddReference(BlockId block) {
  QUIRE_CACHE_CHECK(references_[block] > 0 && references_[block] < UINT32_MAX);
  ++references_[block];
}

void BlockPool::Release(BlockId block) {
  QUIRE_CACHE_CHECK(block < references_.size() && references_[block] > 0);
  if (--references_[block] > 0) return;
#ifndef NDEBUG
  std::memset(data(block), kPoison, block_bytes_);
#endif
  warm_.push_back(block);
  --used_;
  budget_->used_ -= block_bytes_;
}

bool BlockPool::ReleaseOneFree() {
  if (warm_.empty()) return false;
  const BlockId block = warm_.back();
  warm_.pop_back();
  cold_.push_back(block);
  budget_->resident_ -= block_bytes_;
  // Only whole system pages that no neighbor shares.
  const size_t begin = RoundUp(size_t{block} * stride_, SystemPage());
  const size_t end = (size_t{block} + 1) * stride_ / SystemPage() * SystemPage();
  if (begin < end) madvise(base_ + begin, end - begin, MADV_DONTNEED);
  return true;
}

void BlockPool::ReleaseFree() {
  while (ReleaseOneFree()) {
  }
  nodes_.ReleaseFree();
}

std::expected<void, std::string> BlockPool::CheckInvariants(const std::vector<uint32_t>& expected) const {
  const auto fail = [&](std::string what) { return std::unexpected(name_ + ": " + std::move(what)); };
  uint32_t held = 0;
  for (size_t i = 0; i < references_.size(); ++i) {
    const uint32_t want = i < expected.size() ? expected[i] : 0;
    if (references_[i] != want) {
      return fail(fmt::format("block {} has {} references, {} holders", i, references_[i], want));
    }
    held += references_[i] > 0 ? 1 : 0;
  }
  if (expected.size() > references_.size()) return fail("a holder names a block never allocated");
  if (held != used_) return fail(fmt::format("{} blocks held, {} counted", held, used_));
  if (held + warm_.size() + cold_.size() != references_.size())
    return fail("a free block is on no free list");
  for (const std::vector<BlockId>* list : {&warm_, &cold_}) {
    for (const BlockId block : *list) {
      if (references_[block] != 0) return fail(fmt::format("block {} is free and held", block));
    }
  }
  if (used_ > capacity_ || budget_->used_ > budget_->capacity_) return fail("more held than the capacity");
  if (budget_->resident_ > budget_->capacity_) return fail("more resident than the capacity");
  return {};
}

}  // namespace quire::cache
