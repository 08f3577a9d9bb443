// Activations as int8: each 32 elements of a row share a float32 scale, the largest magnitude / 127, and are
// rounded to nearest even. A row's quants depend on that row alone, and are the same on every machine.
//
// Rows lie in groups, which matrix kernels take together: of each K block of 32 elements first row 0's
// quants, then row 1's and so on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/panels.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

class QuantizedActivations {
 public:
  static constexpr size_t kMaxGroupRows = 16;

  struct Group {
    size_t row = 0, count = 0;
  };

  // Rows of a full group, at most kMaxGroupRows; 0: BestGroupRows().
  explicit QuantizedActivations(size_t group_rows = 0) : group_rows_(group_rows) {}

  // Takes rows x [rows, in], `in` a multiple of 32. A group never has rows on both sides of a break;
  // `group_breaks` are ascending row numbers. With `row_at` [rows], row i is row row_at[i] of an x of any
  // length. Memory grows to the largest size asked for and is reused.
  void Quantize(ThreadPool& pool, std::span<const float> x, int64_t rows, int64_t in,
                std::span<const int32_t> group_breaks = {}, std::span<const int32_t> row_at = {});

  // Tag of the input whose rows are cached here.
  void SetCachedFor(const void* owner) { cached_for_ = owner; }
  void ClearCachedFor(const void* owner) {
    if (cached_for_ == owner) cached_for_ = nullptr;
  }
  bool IsCachedFor(const void* owner) const { return cached_for_ == owner; }

  int64_t in() const { return static_cast<int64_t>(k_blocks_ * kKBlock); }
  size_t k_blocks() const { return k_blocks_; }
  std::span<const Group> groups() const { return groups_; }

  // Index of (K block 0, row 0) of a group; (s, r) is s * count + r further.
  size_t At(const Group& group) const { return group.row * k_blocks_; }
  // 32 per index. kMaxGroupRows indices behind the last can be read.
  const int8_t* quants() const { return reinterpret_cast<const int8_t*>(quants_.data()); }
  const float* scale() const { return scale_.data(); }
  // Negated sums: of the 32 quants, of the first 16, of the last 16.
  const int32_t* neg_sum() const { return neg_sum_.data(); }
  const int32_t* neg_sum_first() const { return neg_sum_first_.data(); }
  const int32_t* neg_sum_last() const { return neg_sum_last_.data(); }
  // scale * sum of the 32 quants, of the first 16, of the last 16.
  const float* total() const { return total_.data(); }
  const float* first_total() const { return first_total_.data(); }
  const float* last_total() const { return last_total_.data(); }

  // Bytes of one row of `in` numbers, and bytes allocated now.
  static constexpr int64_t BytesOf(int64_t in) {
    return in +
           in / static_cast<int64_t>(kKBlock) * static_cast<int64_t>(4 * sizeof(float) + 3 * sizeof(int32_t));
  }
  int64_t bytes() const { return BytesOf(static_cast<int64_t>(quants_.capacity() * sizeof(CacheLine))); }

 private:
  // So that no row of a tile crosses a cache line.
  struct alignas(64) CacheLine {
    int8_t quants[2 * kKBlock];
  };

  void SplitIntoGroups(int64_t rows, std::span<const int32_t> group_breaks);

  size_t group_rows_;
  const void* cached_for_ = nullptr;
  size_t k_blocks_ = 0;
  std::vector<Group> groups_;
  std::vector<CacheLine> quants_;  // two K blocks each
  std::vector<float> scale_, total_, first_total_, last_total_;
  std::vector<int32_t> neg_sum_, neg_sum_first_, neg_sum_last_;
};

}  // namespace quire::runner::kernels
