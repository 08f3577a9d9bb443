// The mixer of Mamba-1, with the norms that Jamba has: a state-space layer whose state decays per channel and
// row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/state_space.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

//   u, z = in(x);  u = silu(conv(u));  dt, B, C = norms of step(u), b(u), c(u)
//   y = selective scan(u, B, C, softplus(step_up(dt) + time_bias));  out(y * silu(z))
struct Mamba1 {
  int64_t inner = 0, state_rows = 0, step_rank = 0;
  Linear u, z, step, b, c, step_up, out;
  RmsNorm step_norm, b_norm, c_norm;  // each empty where a family has none
  std::vector<float> taps;            // [kernel, inner], oldest first
  std::vector<float> conv_bias;       // [inner], or empty
  int64_t kernel = 0;
  std::vector<float> time_bias;  // [inner]
  std::vector<float> rate;       // [state_rows, inner]
  std::vector<float> skip;       // [inner]
  size_t recurrent_layer = 0;    // of the layout

  // Required of the layout: the convolution's last inputs, the state, and of each draft token the
  // convolution's input, the time steps and B.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;
};

}  // namespace quire::runner::models
