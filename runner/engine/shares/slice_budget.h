// How many rows a slice of an encoder's pass may compute so that it keeps to its time, from the slices
// measured so far.
//
// What a row costs depends on the keys that it sees: of a long text most of the time is attention. Cutting a
// pass does not change its result (encoder.h). No clock of its own; engine thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace quire::runner::engine {

struct SliceTarget {
  std::chrono::nanoseconds time = std::chrono::milliseconds(100);
  int64_t rows_min = 64, rows_max = 512;
};

class SliceBudget {
 public:
  explicit SliceBudget(SliceTarget target = {}) : target_(target) {}

  // A slice of `rows` rows, each of which saw up to `keys` others, took `took`. Nothing is learned from 0
  // rows.
  void Observe(int32_t keys, int64_t rows, std::chrono::nanoseconds took);
  // Rows for a slice, in [rows_min, rows_max].
  int64_t Rows(int32_t keys) const;
  int64_t rows_max() const { return target_.rows_max; }

 private:
  // By keys: 0, 1, 2 and 3, 4 to 7, ...
  static constexpr size_t kSizes = 24;
  static size_t SizeOf(int32_t keys);
  struct Measured {
    double cost = 0;   // seconds of a row; 0: not measured
    int64_t rows = 0;  // of the latest slices
  };

  SliceTarget target_;
  std::array<Measured, kSizes> sizes_ = {};
};

}  // namespace quire::runner::engine
