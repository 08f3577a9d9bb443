#include "runner/models/mamba2.h"

#include "runner/kernels/elementwise.h"
#include "runner/kernels/short_conv.h"
#include "runner/models/slot_view.h"

namespace quire::runner::models {

cache::RecurrentLayer Mamba2::state() const {
  const int64_t record = shape.channels() + 2 * shape.heads;
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(shape.channels()),
          .delta_heads = static_cast<int32_t>(shape.heads),
          .delta_value_dim = static_cast<int32_t>(shape.state),
          .delta_key_dim = static_cast<int32_t>(shape.head_dim),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void Mamba2::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.projected, shape.channels());
  RowWidths::Grow(widths.convolved, shape.channels());
  RowWidths::Grow(widths.z, shape.inner());
  RowWidths::Grow(widths.attended, shape.inner());
  RowWidths::Grow(widths.decay, shape.heads);
}

void Mamba2::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows();
  const std::span<float> mixed = ctx.work.projected.Get(rows * shape.channels());
  const std::span<float> gate = ctx.work.z.Get(rows * shape.inner());
  const std::span<float> steps = ctx.work.beta.Get(rows * shape.heads);
  const std::span<float> decay = ctx.work.decay.Get(rows * shape.heads);
  RunTogether(ctx.pool, ctx.Input(x), {{&z, gate}, {&u, mixed}, {&dt, steps}});
  if (z_scale != 1) kernels::Scale(ctx.pool, z_scale, gate);
  if (!u_scale.empty()) kernels::ScaleColumns(ctx.pool, u_scale, mixed);
  if (dt_scale != 1) kernels::Scale(ctx.pool, dt_scale, steps);
  kernels::SsdGates(ctx.pool, {.bias = time_bias, .rate = rate, .low = step_low, .high = step_high}, steps,
                    decay);

  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> convolved = ctx.work.convolved.Get(rows * shape.channels());
  kernels::ShortConv(ctx.pool, {.at = at,
                                .form = kernels::ConvForm::kSilu,
                                .channels = shape.channels(),
                                .kernel = kernel,
                                .taps = taps,
                                .bias = conv_bias,
                                .input = mixed,
                                .y = convolved});
  const std::span<float> scanned = ctx.work.attended.Get(rows * shape.inner());
  kernels::SsdScan(
      ctx.pool,
      {.at = at, .shape = shape, .xbc = convolved, .dt = steps, .decay = decay, .skip = skip, .y = scanned});
  if (norm_weight.empty()) {
    kernels::SiluMul(ctx.pool, scanned, gate);
    out.Run(ctx.pool, ctx.Input(gate), y);
  } else {
    kernels::GatedRmsNorm(ctx.pool, norm, norm_weight, gate, scanned);
    out.Run(ctx.pool, ctx.Input(scanned), y);
  }
}

void Mamba2::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                    std::span<const std::byte> inputs, int32_t tokens) const {
  const auto channels = static_cast<size_t>(shape.channels()), heads = static_cast<size_t>(shape.heads);
  const auto count = static_cast<size_t>(tokens);
  const auto parts = SplitRecords(layout.recurrent[recurrent_layer], inputs, count, {channels, heads, heads});
  std::vector<float> convolved(count * channels), scanned(count * static_cast<size_t>(shape.inner()));
  const SlotView step(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  const kernels::RecurrentLayer at{
      .layout = &layout, .layer = recurrent_layer, .step = &step, .row_begin = row_begin};
  kernels::ShortConv(pool, {.at = at,
                            .form = kernels::ConvForm::kSilu,
                            .channels = shape.channels(),
                            .kernel = kernel,
                            .taps = taps,
                            .bias = conv_bias,
                            .input = parts[0],
                            .y = convolved});
  kernels::SsdScan(pool, {.at = at,
                          .shape = shape,
                          .xbc = convolved,
                          .dt = parts[1],
                          .decay = parts[2],
                          .skip = skip,
                          .y = scanned});
}

}  // namespace quire::runner::models
