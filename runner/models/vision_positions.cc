#include "runner/models/vision_positions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {
namespace {

// Bilinear, antialiased, without aligned corners: a triangle as wide as the step from place to place.
std::vector<AxisTap> AntialiasedTaps(int32_t at, int32_t size, int32_t side) {
  const float scale = static_cast<float>(side) / static_cast<float>(size), support = std::max(scale, 1.0F),
              center = (static_cast<float>(at) + 0.5F) * scale - 0.5F;
  std::vector<AxisTap> taps;
  float sum = 0;
  for (int32_t i = 0; i < side; ++i) {
    const float weight = 1 - std::abs(static_cast<float>(i) - center) / support;
    if (weight <= 0) continue;
    taps.push_back({i, weight});
    sum += weight;
  }
  for (AxisTap& tap : taps) tap.weight /= sum;
  return taps;
}

std::vector<AxisTap> CornerTaps(int32_t at, int32_t size, int32_t side) {
  const float place =
      static_cast<float>(at) * static_cast<float>(side - 1) / static_cast<float>(std::max(size - 1, 1));
  const auto below = static_cast<int32_t>(place);
  const float part = place - static_cast<float>(below);
  if (part == 0 || below + 1 >= side) return {{std::min(below, side - 1), 1}};
  return {{below, 1 - part}, {below + 1, part}};
}

// How many of the borders 1 / side, 2 / side, ... below 1 are not behind the place, in the arithmetic of the
// published model.
int32_t BucketOf(int32_t at, int32_t size, int32_t side) {
  const float step = 1.0F / static_cast<float>(size);
  const float place = std::min(static_cast<float>(at) * step, static_cast<float>(1.0 - 1e-6));
  const double border = 1.0 / side;
  const auto borders = static_cast<int32_t>(std::ceil((1.0 - border) / border));
  int32_t bucket = 0;
  while (bucket < borders && static_cast<float>(border + bucket * border) <= place) ++bucket;
  return std::min(bucket, side - 1);
}

}  // namespace

AxisTaps TapsOf(PositionGrid grid, int32_t size, int32_t side) {
  AxisTaps taps;
  taps.reserve(static_cast<size_t>(size));
  for (int32_t at = 0; at < size; ++at) {
    switch (grid) {
      case PositionGrid::kAntialiased:
        taps.push_back(AntialiasedTaps(at, size, side));
        break;
      case PositionGrid::kCorners:
        taps.push_back(CornerTaps(at, size, side));
        break;
      case PositionGrid::kBuckets:
        taps.push_back({{BucketOf(at, size, side), 1}});
        break;
      case PositionGrid::kNone:
      case PositionGrid::kSame:
      case PositionGrid::kSum:
        taps.push_back({{at, 1}});
        break;
    }
  }
  return taps;
}

void PositionTable::Add(std::span<const AxisTap> at_row, std::span<const AxisTap> at_column,
                        std::span<float> row) const {
  if (grid == PositionGrid::kNone) return;
  const auto of = [&](int64_t index) {
    return std::span(values).subspan(static_cast<size_t>(index * width), static_cast<size_t>(width));
  };
  if (grid == PositionGrid::kSum) {
    kernels::MulAdd(1, of(at_column.front().at), row);
    return kernels::MulAdd(1, of(int64_t{side} + at_row.front().at), row);
  }
  for (const AxisTap& y : at_row) {
    for (const AxisTap& x : at_column) {
      kernels::MulAdd(y.weight * x.weight, of(int64_t{y.at} * side + x.at), row);
    }
  }
}

}  // namespace quire::runner::models
