// Short causal depthwise convolutions over a ragged batch, with a tail carried between steps.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/recurrent_layer.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

enum class ConvForm : uint8_t {
  kGated,  // input rows are [B, C, x], u = B * x, y = C * v: the layers of LFM2
  kSilu,   // input rows are u, y = silu(v): before the gated delta rule
};

// v[t] = bias + sum_k taps[k] * u[t - (kernel - 1 - k) * dilation], per channel. `u` before a sequence's
// first new row comes from its tail, which afterwards holds the last (kernel - 1) * dilation columns of u.
// A row reads rows and tail of its own sequence only; how a sequence is cut into steps does not change a
// bit. Captures get the tail as it is at their place; the record of a token begins with its u.
struct ShortConvArgs {
  RecurrentLayer at;  // conv_dim = channels, conv_tail = (kernel - 1) * dilation, float32
  ConvForm form = ConvForm::kGated;
  int64_t channels = 0;
  int64_t kernel = 0;  // >= 1
  int64_t dilation = 1;
  std::span<const float> taps;   // [kernel, channels], oldest first; the last one meets the current token
  std::span<const float> bias;   // [channels], or empty
  std::span<const float> input;  // [rows, 3 * channels] or [rows, channels]
  std::span<float> y;            // [rows, channels]
};

void ShortConv(ThreadPool& pool, const ShortConvArgs& args);

}  // namespace quire::runner::kernels
