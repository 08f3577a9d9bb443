// LFM2's gated short convolution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

// [B, C, x] = in(x); y = out(C * conv(B * x)).
struct ShortConvolution {
  Linear in, out;
  std::vector<float> taps;  // [kernel, channels], oldest first
  std::vector<float> bias;  // [channels], or empty
  int64_t channels = 0;
  int64_t kernel = 0;
  size_t recurrent_layer = 0;  // of the layout

  // Required of the layout: B * x of the last kernel - 1 tokens, and of each draft token.
  cache::RecurrentLayer state() const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, std::byte* slot, std::span<const std::byte> inputs,
              int32_t tokens) const;
};

}  // namespace quire::runner::models
