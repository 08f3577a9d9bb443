// Products of heads, or of groups of heads, with matrices of their own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/models/forward_context.h"

namespace quire::runner::models {

// x [rows, heads, width] from element `first` of each head on, `count` of them, to [heads, rows, count]; or
// back.
inline void ToHeads(std::span<const float> x, size_t rows, size_t heads, size_t width, size_t first,
                    size_t count, std::span<float> to) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < heads; ++head) {
      std::copy_n(x.data() + (row * heads + head) * width + first, count,
                  to.data() + (head * rows + row) * count);
    }
  }
}
inline void FromHeads(std::span<const float> x, size_t rows, size_t heads, size_t width, size_t first,
                      size_t count, std::span<float> to) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < heads; ++head) {
      std::copy_n(x.data() + (head * rows + row) * count, count,
                  to.data() + (row * heads + head) * width + first);
    }
  }
}

// y [heads, rows, out] = x [heads, rows, in], each head times its own matrix.
inline void RunHeads(ForwardContext& ctx, std::span<const kernels::Matrix> matrices, std::span<const float> x,
                     std::span<float> y) {
  const int64_t rows = ctx.rows();
  std::vector<kernels::MatMulPart>& parts = ctx.work.parts;
  std::vector<int32_t>& begin = ctx.work.head_begin;
  parts.clear();
  begin.assign(1, 0);
  for (size_t head = 0; head < matrices.size(); ++head) {
    const auto first = static_cast<int64_t>(head) * rows;
    parts.push_back({.weight = matrices[head], .begin = first, .end = first + rows});
    begin.push_back(static_cast<int32_t>(first + rows));
  }
  const kernels::MatMulInput in(x, begin.back(), ctx.work.quantized, begin);
  kernels::MatMulParts(ctx.pool, in, parts, y);
}

}  // namespace quire::runner::models
