#include "runner/models/kimi_delta.h"

#include <algorithm>

#include "runner/kernels/elementwise.h"
#include "runner/models/gated_delta.h"

namespace quire::runner::models {

cache::RecurrentLayer KimiDelta::state() const {
  const int64_t record = shape.channels() + shape.decays() + shape.value_heads;
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(shape.channels()),
          .delta_heads = static_cast<int32_t>(shape.value_heads),
          .delta_value_dim = static_cast<int32_t>(shape.value_dim),
          .delta_key_dim = static_cast<int32_t>(shape.key_dim),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void KimiDelta::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.projected, shape.channels());
  RowWidths::Grow(widths.convolved, shape.channels());
  RowWidths::Grow(widths.z, shape.values());
  RowWidths::Grow(widths.decay, shape.decays());
  RowWidths::Grow(widths.attended, shape.values());
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
      const std::span<float> low = ctx.work.scores.Get(rows * down.weight.out);
      down.Run(ctx.pool, in, low);
      up.Run(ctx.pool, ctx.Input(low), to);
    };
    RunSideBySide(ctx, in, {&q, &k, &v}, mixed);
    b.Run(ctx.pool, in, beta);
    low_rank(decay_down, decay_up, decay);
    low_rank(gate_down, gate_up, gate);
  }
  kernels::ChannelDecay(ctx.pool, rate, time_bias, decay);
  kernels::SigmoidOf(beta);
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> delta_out = ctx.work.attended.Get(rows * shape.values());
  UpdateDelta(ctx.pool, at, {.kernel = kernel, .taps = taps}, shape,
              {.mixed = mixed,
               .convolved = ctx.work.convolved.Get(rows * shape.channels()),
               .decay = decay,
               .beta = beta,
               .y = delta_out});
  norm.Run(ctx.pool, delta_out, delta_out);
  kernels::SigmoidMul(ctx.pool, gate, delta_out);
  out.Run(ctx.pool, ctx.Input(delta_out), y);
}

void KimiDelta::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                       std::span<const std::byte> inputs, int32_t tokens) const {
  ReplayDelta(layout, recurrent_layer, pool, slot, inputs, tokens, {.kernel = kernel, .taps = taps}, shape);
}

}  // namespace quire::runner::models
