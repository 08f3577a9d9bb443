#include "runner/engine/shares/slice_budget.h"

#include <algorithm>
#include <bit>

namespace quire::runner::engine {
namespace {

constexpr double kSliceMargin = 0.8;  // of the target: slices vary, more than their mean
constexpr int64_t kSliceGrowth = 4;   // a slice grows at most by this factor from one to the next
constexpr double kSlower = 0.5;       // weight of a measurement above the mean
constexpr double kFaster = 0.25;      // and of one below

}  // namespace

size_t SliceBudget::SizeOf(int32_t keys) {
  return std::min<size_t>(std::bit_width(static_cast<uint32_t>(std::max(keys, 0))), kSizes - 1);
}

void SliceBudget::Observe(int32_t keys, int64_t rows, std::chrono::nanoseconds took) {
  if (rows <= 0) return;
  Measured& measured = sizes_[SizeOf(keys)];
  const double cost = std::chrono::duration<double>(took).count() / static_cast<double>(rows);
  const double weight = cost > measured.cost ? kSlower : kFaster;
  measured.cost = measured.cost == 0 ? cost : measured.cost + weight * (cost - measured.cost);
  measured.rows = std::max(rows, measured.rows / 2);  // the short end of a text says nothing of the next one
}

int64_t SliceBudget::Rows(int32_t keys) const {
  // Where nothing is measured yet, the nearest smaller size with as many times the cost as it has keys: no
  // row costs more.
  size_t size = SizeOf(keys);
  double factor = 1;
  while (size > 1 && sizes_[size].cost == 0) {
    --size;
    factor *= 2;
  }
  const Measured& measured = sizes_[size];
  if (measured.cost == 0) return target_.rows_min;
  const double rows =
      kSliceMargin * std::chrono::duration<double>(target_.time).count() / (factor * measured.cost);
  const int64_t most = std::clamp(measured.rows * kSliceGrowth, target_.rows_min, target_.rows_max);
  const auto whole = static_cast<int64_t>(std::min(rows, static_cast<double>(most)));
  return std::max(whole / target_.rows_min * target_.rows_min, target_.rows_min);
}

}  // namespace quire::runner::engine
