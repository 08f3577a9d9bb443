#include "runner/models/kimi_delta.h"

#include <algorithm>
#include <cstring>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/short_conv.h"
#include "runner/models/slot_view.h"

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

void KimiDelta::Project(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> mixed) const {
  int64_t first = 0;
  for (const Linear* part : {&q, &k, &v}) {
    const int64_t width = part->weight.out;
    const std::span<float> rows = ctx.work.convolved.Get(ctx.rows() * width);
    part->Run(ctx.pool, x, rows);
    for (int64_t row = 0; row < ctx.rows(); ++row) {
      std::copy_n(rows.data() + row * width, width, mixed.data() + row * shape.channels() + first);
    }
    first += width;
  }
}

void KimiDelta::Update(ThreadPool& pool, const kernels::RecurrentLayer& at, std::span<const float> mixed,
                       std::span<float> convolved, std::span<const float> decay, std::span<const float> beta,
                       std::span<float> y) const {
  kernels::ShortConv(pool, {.at = at,
                            .form = kernels::ConvForm::kSilu,
                            .channels = shape.channels(),
                            .kernel = kernel,
                            .taps = taps,
                            .bias = {},
                            .input = mixed,
                            .y = convolved});
  kernels::GatedDelta(pool,
                      {.at = at, .shape = shape, .qkv = convolved, .decay = decay, .beta = beta, .y = y});
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
    Project(ctx, in, mixed);
    b.Run(ctx.pool, in, beta);
    low_rank(decay_down, decay_up, decay);
    low_rank(gate_down, gate_up, gate);
  }
  kernels::ChannelDecay(ctx.pool, rate, time_bias, decay);
  kernels::SigmoidOf(beta);
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> delta_out = ctx.work.attended.Get(rows * shape.values());
  Update(ctx.pool, at, mixed, ctx.work.convolved.Get(rows * shape.channels()), decay, beta, delta_out);
  norm.Run(ctx.pool, delta_out, delta_out);
  kernels::SigmoidMul(ctx.pool, gate, delta_out);
  out.Run(ctx.pool, ctx.Input(delta_out), y);
}

void KimiDelta::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                       std::span<const std::byte> inputs, int32_t tokens) const {
  const auto channels = static_cast<size_t>(shape.channels()), decays = static_cast<size_t>(shape.decays());
  const auto heads = static_cast<size_t>(shape.value_heads), count = static_cast<size_t>(tokens);
  const size_t stride = channels + decays + heads;
  std::vector<float> mixed(count * channels), convolved(mixed.size()), decay(count * decays),
      beta(count * heads);
  std::vector<float> delta_out(count * static_cast<size_t>(shape.values()));
  for (size_t t = 0; t < count; ++t) {
    const std::byte* record = inputs.data() + t * stride * sizeof(float);
    std::memcpy(mixed.data() + t * channels, record, channels * sizeof(float));
    std::memcpy(decay.data() + t * decays, record + channels * sizeof(float), decays * sizeof(float));
    std::memcpy(beta.data() + t * heads, record + (channels + decays) * sizeof(float), heads * sizeof(float));
  }
  const SlotView step(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  const kernels::RecurrentLayer at{
      .layout = &layout, .layer = recurrent_layer, .step = &step, .row_begin = row_begin};
  Update(pool, at, mixed, convolved, decay, beta, delta_out);
}

}  // namespace quire::runner::models
