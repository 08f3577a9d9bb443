// The state-space mixer of PLaMo 2: Mamba-2's recurrence, whose B, C and time steps are projections of the
// convolved input, as Mamba-1 has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/short_conv.h"
#include "runner/kernels/state_space.h"
#include "runner/models/forward_context.h"
#include "runner/models/linear.h"

namespace quire::runner::models {

//   z, u = halves of each head of in(x);  u = silu(conv(u));  B, C, dt = norms of b(u), c(u), step(u)
//   y = SSD(u, B, C, softplus(step_up(dt) + time_bias));  out(y * silu(z))
struct Plamo2Mixer {
  kernels::SsdShape shape;  // one group
  int64_t step_rank = 0;
  Linear in, b, c, step, step_up, out;
  RmsNorm b_norm, c_norm, step_norm;
  std::vector<float> taps;  // [kernel, inner], oldest first
  int64_t kernel = 0;
  std::vector<float> time_bias, rate, skip;  // [heads]
  size_t recurrent_layer = 0;                // of the layout

  // Required of the layout: the convolution's last inputs, a state per head, and of each draft token the
  // convolution's input, B, the time steps and the decays.
  cache::RecurrentLayer state() const;
  void GrowWidths(RowWidths& widths) const;
  void Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const;
  // Moves the state in `slot` on by the recorded inputs of some tokens.
  void Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
              std::span<const std::byte> inputs, int32_t tokens) const;

 private:
  kernels::ShortConvArgs Convolution(const kernels::RecurrentLayer& at, std::span<const float> u,
                                     std::span<float> y) const;
  void RecordInputs(const kernels::RecurrentLayer& at, std::span<const float> b_rows) const;
};

}  // namespace quire::runner::models
