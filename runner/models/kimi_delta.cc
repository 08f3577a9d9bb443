#include "runner/models/kimi_delta.h"

#include <algorithm>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {

void KimiDelta::GrowWidths(RowWidths& widths) const {
  DeltaRule::GrowWidths(widths);
  RowWidths::Grow(widths.scores, std::max(decay_down.weight.out, gate_down.weight.out));
}

void KimiDelta::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows();
  const std::span<float> mixed = ctx.work.projected.Get(rows * shape.channels());
  const std::span<float> decay = ctx.work.decay.Get(rows * shape.decays());
  const std::span<float> beta = ctx.work.beta.Get(rows * shape.value_heads);
  const std::span<float> gate = ctx.work.z.Get(rows * shape.values());
  {
    const kernels::MatMulInput in = ctx.Input(x);
    const auto low_rank = [&](const Linear& down, const Linear& up, std::span<float> to) {
      if (!down) return up.Run(ctx.pool, in, to);
      const std::span<float> low = ctx.work.scores.Get(rows * down.weight.out);
      down.Run(ctx.pool, in, low);
      up.Run(ctx.pool, ctx.Input(low), to);
    };
    RunSideBySide(ctx, in, {&q, &k, &v}, mixed);
    b.Run(ctx.pool, in, beta);
    low_rank(decay_down, decay_up, decay);
    low_rank(gate_down, gate_up, gate);
  }
  if (bound != 0) {
    kernels::BoundedChannelDecay(ctx.pool, rate, time_bias, bound, decay);
  } else {
    kernels::ChannelDecay(ctx.pool, rate, time_bias, decay);
  }
  kernels::SigmoidOf(beta);
  const std::span<float> delta_out = Update(ctx, mixed, decay, beta);
  norm.Run(ctx.pool, delta_out, delta_out);
  kernels::SigmoidMul(ctx.pool, gate, delta_out);
  out.Run(ctx.pool, ctx.Input(delta_out), y);
}

}  // namespace quire::runner::models
