// The learned positions of an image's patches: a table of a square grid, read at the places of a grid of
// another size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::models {

enum class PositionGrid : uint8_t {
  kNone,
  kSame,         // the table's own grid
  kAntialiased,  // bilinear, stretched to the patches' size where there are fewer of them (SigLIP 2 NaFlex)
  kCorners,      // bilinear, the corners of the grids lie on each other (Qwen3-VL)
  kBuckets,      // the nearest place before (Idefics3)
  kSum,          // a table for each axis; places count up (Gemma 4)
};

// The rows of a table that one coordinate is made of, and their weights.
struct AxisTap {
  int32_t at = 0;
  float weight = 0;
};
using AxisTaps = std::vector<std::vector<AxisTap>>;  // [coordinates]

// Those of `size` coordinates in a table of `side`. REQUIRES: size >= 1; where kSame or kSum, size <= side.
AxisTaps TapsOf(PositionGrid grid, int32_t size, int32_t side);

struct PositionTable {
  PositionGrid grid = PositionGrid::kNone;
  int32_t side = 0;
  int64_t width = 0;
  std::vector<float> values = {};  // [side, side, width]; kSum: [columns or rows, side, width]

  // Adds the position of the patch at these coordinates to `row` [width].
  void Add(std::span<const AxisTap> at_row, std::span<const AxisTap> at_column, std::span<float> row) const;
};

}  // namespace quire::runner::models
