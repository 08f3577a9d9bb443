// Activations as int8: each 32 elements of a row share a float32 scale, the largest magnitude / 127, and are
// rounded to nearest even. A row's quants depend on that row alone, and are the same on every machine.
//
// Rows lie in groups of up to 12, which matrix kernels take together: of each step of 32 elements first row
// 0's quants, then row 1's and so on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/panels.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

class QuantizedRows {
 public:
  static constexpr size_t kGroupRows = 12;

  struct Group {
    size_t row = 0, count = 0;
  };

  // Takes rows x [rows, in], `in` a multiple of 32. A group never has rows on both sides of a cut; `cuts` are
  // ascending row numbers. Memory grows to the largest size asked for and is reused.
  void Quantize(ThreadPool& pool, std::span<const float> x, int64_t rows, int64_t in,
                std::span<const int32_t> cuts = {});

  // Whose rows these are, so that an input can tell whether they still are its own.
  void Keep(const void* owner) { owner_ = owner; }
  void Forget(const void* owner) {
    if (owner_ == owner) owner_ = nullptr;
  }
  bool IsOf(const void* owner) const { return owner_ == owner; }

  int64_t in() const { return static_cast<int64_t>(steps_ * kStep); }
  size_t steps() const { return steps_; }
  std::span<const Group> groups() const { return groups_; }

  // Index of (step 0, row 0) of a group; (s, r) is s * count + r further.
  size_t At(const Group& group) const { return group.row * steps_; }
  const int8_t* quants() const { return quants_.data(); }  // 32 per index
  const float* scale() const { return scale_.data(); }
  // Sums with the sign turned: of the 32 quants, of the first 16, of the last 16.
  const int32_t* minus_sum() const { return minus_sum_.data(); }
  const int32_t* minus_first() const { return minus_first_.data(); }
  const int32_t* minus_last() const { return minus_last_.data(); }
  // scale * sum of the 32 quants, of the first 16, of the last 16.
  const float* total() const { return total_.data(); }
  const float* first_total() const { return first_total_.data(); }
  const float* last_total() const { return last_total_.data(); }

  // What one row of `in` numbers takes, and what is held now.
  static constexpr int64_t BytesOf(int64_t in) {
    return in +
           in / static_cast<int64_t>(kStep) * static_cast<int64_t>(4 * sizeof(float) + 3 * sizeof(int32_t));
  }
  int64_t bytes() const { return BytesOf(static_cast<int64_t>(quants_.capacity())); }

 private:
  void SplitIntoGroups(int64_t rows, std::span<const int32_t> cuts);

  const void* owner_ = nullptr;
  size_t steps_ = 0;
  std::vector<Group> groups_;
  std::vector<int8_t> quants_;
  std::vector<float> scale_, total_, first_total_, last_total_;
  std::vector<int32_t> minus_sum_, minus_first_, minus_last_;
};

}  // namespace quire::runner::kernels
