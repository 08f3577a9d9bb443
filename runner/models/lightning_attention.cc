#include "runner/models/lightning_attention.h"

#include <algorithm>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/lightning.h"
#include "runner/models/slot_view.h"

namespace quire::runner::models {
namespace {

// What the scan sees of the new tokens of sequences with a draft.
void RecordInputs(const kernels::RecurrentLayer& at, size_t channels, std::span<const float> vkq) {
  for (size_t sequence = 0; sequence < at.sequences(); ++sequence) {
    float* record = at.Record(sequence);
    if (record == nullptr) continue;
    const auto first = static_cast<size_t>(at.row_begin[sequence]);
    for (size_t t = 0; t < at.rows(sequence); ++t, record += at.record_stride()) {
      std::copy_n(vkq.data() + (first + t) * channels, channels, record);
    }
  }
}

}  // namespace

cache::RecurrentLayer LightningAttention::state() const {
  const int64_t record = shape().channels() + 2 * heads;
  return {.delta_heads = static_cast<int32_t>(heads),
          .delta_value_dim = static_cast<int32_t>(head_dim),
          .delta_key_dim = static_cast<int32_t>(head_dim),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void LightningAttention::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.projected, shape().channels());
  RowWidths::Grow(widths.convolved, shape().channels());
  RowWidths::Grow(widths.z, shape().inner());
  RowWidths::Grow(widths.attended, shape().inner());
  RowWidths::Grow(widths.decay, heads);
}

void LightningAttention::Scan(ThreadPool& pool, const kernels::RecurrentLayer& at, std::span<const float> vkq,
                              std::span<float> steps, std::span<float> decays, std::span<float> y) const {
  std::ranges::fill(steps, 1.0F);
  for (size_t row = 0; row < decays.size(); row += decay.size()) {
    std::ranges::copy(decay, decays.begin() + static_cast<ptrdiff_t>(row));
  }
  const std::vector<float> no_skip(decay.size());
  kernels::SsdScan(
      pool, {.at = at, .shape = shape(), .xbc = vkq, .dt = steps, .decay = decays, .skip = no_skip, .y = y});
}

void LightningAttention::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows(), channels = shape().channels(), inner = shape().inner();
  const std::span<float> projected = ctx.work.projected.Get(rows * channels);
  const std::span<float> vkq = ctx.work.convolved.Get(rows * channels);
  const std::span<float> gates = ctx.work.z.Get(rows * inner);
  RunTogether(ctx.pool, ctx.Input(x), {{&qkv, projected}, {&gate, gates}});
  kernels::SiluToScanOrder(ctx.pool, heads, head_dim, projected, vkq);
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  RecordInputs(at, static_cast<size_t>(channels), vkq);
  const std::span<float> attended = ctx.work.attended.Get(rows * inner);
  Scan(ctx.pool, at, vkq, ctx.work.beta.Get(rows * heads), ctx.work.decay.Get(rows * heads), attended);
  norm.Run(ctx.pool, attended, attended);
  kernels::SigmoidMul(ctx.pool, gates, attended);
  out.Run(ctx.pool, ctx.Input(attended), y);
}

void LightningAttention::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                                std::span<const std::byte> inputs, int32_t tokens) const {
  const auto channels = static_cast<size_t>(shape().channels()), count = static_cast<size_t>(tokens);
  const auto parts = SplitRecords(layout.recurrent[recurrent_layer], inputs, count, {channels});
  std::vector<float> steps(count * decay.size()), decays(steps.size());
  std::vector<float> attended(count * static_cast<size_t>(shape().inner()));
  const SlotView step(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  const kernels::RecurrentLayer at{
      .layout = &layout, .layer = recurrent_layer, .step = &step, .row_begin = row_begin};
  Scan(pool, at, parts[0], steps, decays, attended);
}

}  // namespace quire::runner::models
