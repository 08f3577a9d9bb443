// The mixer of Mamba-2: a state-space layer whose state decays by one number per head and token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/state_space.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

//   z, u, dt = in(x)      u: the channels of x, B and C; each times its multipliers
//   x, B, C = silu(conv(u))
//   y = SSD(x, B, C, dt)
//   out(norm(y * silu(z))), or out(norm(y) * silu(z)), or without a norm
struct Mamba2 {
  kernels::SsdShape shape;
  Linear z, u, dt, out;
  float z_scale = 1, dt_scale = 1;
  std::vector<float> u_scale;    // [channels], or empty
  std::vector<float> taps;       // [kernel, channels], oldest first
  std::vector<float> conv_bias;  // [channels], or empty
  int64_t kernel = 0;
  std::vector<float> time_bias, rate, skip;  // [heads]
  float step_low = 0, step_high = 0;         // limits of a time step
  kernels::GatedNormShape norm;
  std::vector<float> norm_weight;  // [inner], or empty: there is no norm
  size_t recurrent_layer = 0;      // of the layout

  // Required of the layout: the convolution's last inputs, a state per head, and of each draft token the
  // convolution's input, the time steps and the decays.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;
};

}  // namespace quire::runner::models
