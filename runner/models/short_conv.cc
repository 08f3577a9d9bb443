#include "runner/models/short_conv.h"

#include <algorithm>
#include <cstring>

#include "runner/kernels/short_conv.h"

namespace quire::runner::models {

cache::RecurrentLayer ShortConvolution::state() const {
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(channels),
          .record_bytes = static_cast<int32_t>(channels * static_cast<int64_t>(sizeof(float)))};
}

void ShortConvolution::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const std::span<float> gates = ctx.work.projected.Get(ctx.rows() * 3 * channels);
  const std::span<float> convolved = ctx.work.convolved.Get(ctx.rows() * channels);
  in.Run(ctx.pool, ctx.Input(x), gates);
  kernels::ShortConv(ctx.pool, {.at = {.layout = &ctx.layout,
                                       .layer = recurrent_layer,
                                       .step = &ctx.step,
                                       .row_begin = ctx.batch.row_begin},
                                .form = kernels::ConvForm::kGated,
                                .channels = channels,
                                .kernel = kernel,
                                .taps = taps,
                                .bias = bias,
                                .input = gates,
                                .y = convolved});
  out.Run(ctx.pool, ctx.Input(convolved), y);
}

void ShortConvolution::Replay(const cache::Layout& layout, std::byte* slot, std::span<const std::byte> inputs,
                              int32_t tokens) const {
  const size_t column = static_cast<size_t>(channels) * sizeof(float);
  const size_t columns = static_cast<size_t>(kernel - 1), count = static_cast<size_t>(tokens);
  std::byte* const tail = slot + cache::ConvOffset(layout, recurrent_layer);
  const size_t kept = columns - std::min(columns, count);
  std::memmove(tail, tail + (columns - kept) * column, kept * column);
  std::memcpy(tail + kept * column, inputs.data() + (count - (columns - kept)) * column,
              (columns - kept) * column);
}

}  // namespace quire::runner::models
