#include "runner/models/mamba1.h"

#include "runner/kernels/elementwise.h"
#include "runner/kernels/short_conv.h"
#include "runner/models/slot_view.h"

namespace quire::runner::models {

cache::RecurrentLayer Mamba1::state() const {
  const int64_t record = 2 * inner + state_rows;
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(inner),
          .delta_heads = 1,
          .delta_value_dim = static_cast<int32_t>(state_rows),
          .delta_key_dim = static_cast<int32_t>(inner),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void Mamba1::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.projected, inner);
  RowWidths::Grow(widths.convolved, inner);
  RowWidths::Grow(widths.z, inner);
  RowWidths::Grow(widths.attended, inner);
  RowWidths::Grow(widths.decay, inner + state_rows);  // twice: steps and C; B and the steps before they grow
  RowWidths::Grow(widths.scores, step_rank);
}

void Mamba1::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows();
  const std::span<float> mixed = ctx.work.projected.Get(rows * inner);
  const std::span<float> gate = ctx.work.z.Get(rows * inner);
  RunTogether(ctx.pool, ctx.Input(x), {{&u, mixed}, {&z, gate}});
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> convolved = ctx.work.convolved.Get(rows * inner);
  kernels::ShortConv(ctx.pool, {.at = at,
                                .form = kernels::ConvForm::kSilu,
                                .channels = inner,
                                .kernel = kernel,
                                .taps = taps,
                                .bias = conv_bias,
                                .input = mixed,
                                .y = convolved});
  const std::span<float> memory = ctx.work.decay.Get(rows * (inner + state_rows));
  const auto wide = static_cast<size_t>(rows * inner), narrow = static_cast<size_t>(rows * state_rows);
  const std::span<float> steps = memory.first(wide), c_rows = memory.last(narrow);
  const std::span<float> b_rows = ctx.work.beta.Get(rows * state_rows);
  const std::span<float> small = ctx.work.scores.Get(rows * step_rank);
  RunTogether(ctx.pool, ctx.Input(convolved), {{&step, small}, {&b, b_rows}, {&c, c_rows}});
  if (step_norm) step_norm.Run(ctx.pool, small, small);
  if (b_norm) b_norm.Run(ctx.pool, b_rows, b_rows);
  if (c_norm) c_norm.Run(ctx.pool, c_rows, c_rows);
  step_up.Run(ctx.pool, ctx.Input(small), steps);
  kernels::SoftplusRows(ctx.pool, time_bias, steps);
  const std::span<float> scanned = ctx.work.attended.Get(rows * inner);
  kernels::SelectiveScan(ctx.pool, {.at = at,
                                    .inner = inner,
                                    .state = state_rows,
                                    .x = convolved,
                                    .dt = steps,
                                    .b = b_rows,
                                    .c = c_rows,
                                    .rate = rate,
                                    .skip = skip,
                                    .y = scanned});
  kernels::SiluMul(ctx.pool, scanned, gate);
  out.Run(ctx.pool, ctx.Input(gate), y);
}

void Mamba1::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                    std::span<const std::byte> inputs, int32_t tokens) const {
  const auto width = static_cast<size_t>(inner), states = static_cast<size_t>(state_rows);
  const auto count = static_cast<size_t>(tokens);
  const auto parts = SplitRecords(layout.recurrent[recurrent_layer], inputs, count, {width, width, states});
  std::vector<float> convolved(count * width), scanned(count * width);
  const std::vector<float> c_rows(count * states);
  const SlotView view(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  const kernels::RecurrentLayer at{
      .layout = &layout, .layer = recurrent_layer, .step = &view, .row_begin = row_begin};
  kernels::ShortConv(pool, {.at = at,
                            .form = kernels::ConvForm::kSilu,
                            .channels = inner,
                            .kernel = kernel,
                            .taps = taps,
                            .bias = conv_bias,
                            .input = parts[0],
                            .y = convolved});
  kernels::SelectiveScan(pool, {.at = at,
                                .inner = inner,
                                .state = state_rows,
                                .x = convolved,
                                .dt = parts[1],
                                .b = parts[2],
                                .c = c_rows,
                                .rate = rate,
                                .skip = skip,
                                .y = scanned});
}

}  // namespace quire::runner::models
