// The gated short convolution of LFM2 over a ragged batch, with state carried between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// With u = B * x (elementwise): y[t] = C[t] * (bias + sum_k taps[k] * u[t - (kernel - 1) + k]).
// `u` before a sequence's first new row comes from its tail, which afterwards holds the last kernel - 1
// columns of u. A row reads rows and tail of its own sequence only; how a sequence is cut into calls does not
// change a bit.
struct ShortConvArgs {
  int64_t channels = 0;
  int64_t kernel = 0;           // >= 1
  std::span<const float> taps;  // [kernel, channels], oldest first; the last one meets the current token
  std::span<const float> bias;  // [channels], or empty
  std::span<const float> bcx;   // [rows, 3 * channels]: B, C, x
  std::span<const int32_t> row_begin;  // [sequences + 1]
  std::span<float* const> tails;  // [sequences], each [kernel - 1, channels], oldest first, 4-byte aligned
  std::span<float> y;             // [rows, channels]
};

void ShortConv(ThreadPool& pool, const ShortConvArgs& args);

}  // namespace quire::runner::kernels
