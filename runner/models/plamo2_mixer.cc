#include "runner/models/plamo2_mixer.h"

#include <algorithm>
#include <limits>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/parallel_rows.h"
#include "runner/models/slot_view.h"

namespace quire::runner::models {
namespace {

// Rows of the recurrence: what was convolved, B and C.
void JoinRows(ThreadPool& pool, const kernels::SsdShape& shape, std::span<const float> u,
              std::span<const float> b, std::span<const float> c, std::span<float> rows) {
  const auto inner = static_cast<size_t>(shape.inner()), states = static_cast<size_t>(shape.state);
  const size_t width = inner + 2 * states;
  kernels::ForEachRow(pool, rows.size() / width, width, [&](size_t row) {
    float* const to = rows.data() + row * width;
    std::copy_n(u.data() + row * inner, inner, to);
    std::copy_n(b.data() + row * states, states, to + inner);
    std::copy_n(c.data() + row * states, states, to + inner + states);
  });
}

}  // namespace

cache::RecurrentLayer Plamo2Mixer::state() const {
  const int64_t record = shape.channels() + 2 * shape.heads;
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(shape.inner()),
          .delta_heads = static_cast<int32_t>(shape.heads),
          .delta_value_dim = static_cast<int32_t>(shape.state),
          .delta_key_dim = static_cast<int32_t>(shape.head_dim),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void Plamo2Mixer::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.projected, std::max(2 * shape.inner(), shape.channels()));
  RowWidths::Grow(widths.q, shape.inner());
  RowWidths::Grow(widths.z, shape.inner());
  RowWidths::Grow(widths.convolved, shape.inner());
  RowWidths::Grow(widths.attended, shape.inner());
  RowWidths::Grow(widths.k, shape.state);
  RowWidths::Grow(widths.decay, std::max(2 * shape.heads, shape.state));  // twice: steps and decays; B
  RowWidths::Grow(widths.scores, step_rank);
}

kernels::ShortConvArgs Plamo2Mixer::Convolution(const kernels::RecurrentLayer& at, std::span<const float> u,
                                                std::span<float> y) const {
  return {.at = at,
          .form = kernels::ConvForm::kSilu,
          .channels = shape.inner(),
          .kernel = kernel,
          .taps = taps,
          .bias = {},
          .input = u,
          .y = y};
}

// Behind the convolution's input; the scan records the rest.
void Plamo2Mixer::RecordInputs(const kernels::RecurrentLayer& at, std::span<const float> b_rows) const {
  const auto inner = static_cast<size_t>(shape.inner()), states = static_cast<size_t>(shape.state);
  for (size_t sequence = 0; sequence < at.sequences(); ++sequence) {
    float* record = at.Record(sequence);
    if (record == nullptr) continue;
    const auto first = static_cast<size_t>(at.row_begin[sequence]);
    for (size_t t = 0; t < at.rows(sequence); ++t, record += at.record_stride()) {
      std::copy_n(b_rows.data() + (first + t) * states, states, record + inner);
    }
  }
}

void Plamo2Mixer::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows();
  const std::span<float> mixed = ctx.work.q.Get(rows * shape.inner());
  const std::span<float> gate = ctx.work.z.Get(rows * shape.inner());
  {
    const std::span<float> both = ctx.work.projected.Get(2 * rows * shape.inner());
    in.Run(ctx.pool, ctx.Input(x), both);
    kernels::SplitHalves(ctx.pool, both, shape.head_dim, gate, mixed);
  }
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> convolved = ctx.work.convolved.Get(rows * shape.inner());
  kernels::ShortConv(ctx.pool, Convolution(at, mixed, convolved));
  const std::span<float> b_rows = ctx.work.beta.Get(rows * shape.state);
  const std::span<float> c_rows = ctx.work.k.Get(rows * shape.state);
  const std::span<float> small = ctx.work.scores.Get(rows * step_rank);
  {
    const kernels::MatMulInput input = ctx.Input(convolved);
    b.Run(ctx.pool, input, b_rows);
    c.Run(ctx.pool, input, c_rows);
    step.Run(ctx.pool, input, small);
  }
  b_norm.Run(ctx.pool, b_rows, b_rows);
  c_norm.Run(ctx.pool, c_rows, c_rows);
  step_norm.Run(ctx.pool, small, small);
  const std::span<float> both = ctx.work.decay.Get(2 * rows * shape.heads);
  const std::span<float> steps = both.first(both.size() / 2), decay = both.subspan(both.size() / 2);
  step_up.Run(ctx.pool, ctx.Input(small), steps);
  kernels::SsdGates(
      ctx.pool, {.bias = time_bias, .rate = rate, .low = 0, .high = std::numeric_limits<float>::infinity()},
      steps, decay);
  RecordInputs(at, b_rows);
  const std::span<float> joined = ctx.work.projected.Get(rows * shape.channels());
  JoinRows(ctx.pool, shape, convolved, b_rows, c_rows, joined);
  const std::span<float> scanned = ctx.work.attended.Get(rows * shape.inner());
  kernels::SsdScan(
      ctx.pool,
      {.at = at, .shape = shape, .xbc = joined, .dt = steps, .decay = decay, .skip = skip, .y = scanned});
  kernels::SiluMul(ctx.pool, scanned, gate);
  out.Run(ctx.pool, ctx.Input(gate), y);
}

void Plamo2Mixer::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                         std::span<const std::byte> inputs, int32_t tokens) const {
  const auto inner = static_cast<size_t>(shape.inner()), states = static_cast<size_t>(shape.state);
  const auto heads = static_cast<size_t>(shape.heads), count = static_cast<size_t>(tokens);
  // Where C would be, nothing was recorded: the state does not depend on it.
  const auto parts =
      SplitRecords(layout.recurrent[recurrent_layer], inputs, count, {inner, states, states, heads, heads});
  std::vector<float> convolved(count * inner), joined(count * (inner + 2 * states)), scanned(count * inner);
  const std::vector<float> c_rows(count * states);
  const SlotView view(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  const kernels::RecurrentLayer at{
      .layout = &layout, .layer = recurrent_layer, .step = &view, .row_begin = row_begin};
  kernels::ShortConv(pool, Convolution(at, parts[0], convolved));
  JoinRows(pool, shape, convolved, parts[1], c_rows, joined);
  kernels::SsdScan(pool, {.at = at,
                          .shape = shape,
                          .xbc = joined,
                          .dt = parts[3],
                          .decay = parts[4],
                          .skip = skip,
                          .y = scanned});
}

}  // namespace quire::runner::models
