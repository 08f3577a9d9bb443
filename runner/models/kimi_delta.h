// Kimi Delta Attention (Kimi Linear): a gated delta net whose state decays at a rate of its own in each key channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/gated_delta.h"
#include "runner/kernels/recurrent_layer.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

//   q, k, v = silu(conv(qkv(x)))     q, k of length 1 per head
//   decay = exp(rate * softplus(decay_up(decay_down(x)) + time_bias))     beta = sigmoid(b(x))
//   o = gated delta rule(q, k, v, decay, beta)
//   y = out(norm(o) * sigmoid(gate_up(gate_down(x))))     norm per head
struct KimiDelta {
  kernels::GatedDeltaShape shape;  // by_channel
  Linear q, k, v;
  Linear decay_down, decay_up, gate_down, gate_up;
  Linear b;
  std::vector<float> taps;  // [kernel, shape.channels()], oldest first
  int64_t kernel = 0;
  std::vector<float> rate;       // [heads]
  std::vector<float> time_bias;  // [heads, key_dim]
  RmsNorm norm;                  // [value_dim]
  Linear out;
  size_t recurrent_layer = 0;  // of the layout

  // Required of the layout: the convolution's last inputs, a matrix per head, and of each draft token the
  // convolution's input and the gates.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;
};

}  // namespace quire::runner::models
