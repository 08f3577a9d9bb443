#include "runner/models/gated_delta.h"

#include <algorithm>
#include <array>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/row_epilogue.h"
#include "runner/kernels/short_conv.h"
#include "runner/models/slot_view.h"

namespace quire::runner::models {
namespace {

// Copies consecutive runs of an interleaved row to their destinations.
class Deinterleaver {
 public:
  explicit Deinterleaver(const float* from) : from_(from) {}
  void Next(int64_t count, float* to) {
    std::copy_n(from_, count, to);
    from_ += count;
  }

 private:
  const float* from_;
};

struct DeltaRows {
  std::span<const float> mixed;
  std::span<float> convolved;
  std::span<const float> decay, beta;
  std::span<float> y;
};

void UpdateAt(ThreadPool& pool, const kernels::RecurrentLayer& at, const DeltaRule& rule,
              const DeltaRows& rows) {
  kernels::ShortConv(pool, {.at = at,
                            .form = kernels::ConvForm::kSilu,
                            .channels = rule.shape.channels(),
                            .kernel = rule.kernel,
                            .taps = rule.taps,
                            .bias = {},
                            .input = rows.mixed,
                            .y = rows.convolved});
  kernels::GatedDelta(pool, {.at = at,
                             .shape = rule.shape,
                             .qkv = rows.convolved,
                             .decay = rows.decay,
                             .beta = rows.beta,
                             .y = rows.y});
}

}  // namespace

void RunSideBySide(ForwardContext& ctx, const kernels::MatMulInput& x,
                   std::initializer_list<const Linear*> parts, std::span<float> to) {
  int64_t all = 0;
  for (const Linear* part : parts) all += part->weight.out;
  std::array<LinearOutput, kernels::kTogetherMax> outputs;
  std::span<float> left = ctx.work.convolved.Get(ctx.rows() * all);
  size_t count = 0;
  for (const Linear* part : parts) {
    const auto size = static_cast<size_t>(ctx.rows() * part->weight.out);
    outputs[count++] = {part, left.first(size)};
    left = left.subspan(size);
  }
  RunTogether(ctx.pool, x, std::span(outputs).first(count));
  float* out = to.data();
  for (int64_t row = 0; row < ctx.rows(); ++row) {
    for (const LinearOutput& output : std::span(outputs).first(count)) {
      const int64_t width = output.linear->weight.out;
      out = std::copy_n(output.y.data() + row * width, width, out);
    }
  }
}

void DeltaRule::BindTaps(const TensorScope& scope, TensorName q, TensorName k, TensorName v) {
  const auto rows = static_cast<size_t>(kernel), all = static_cast<size_t>(shape.channels());
  taps.assign(rows * all, 0);
  size_t first = 0;
  const auto put = [&](TensorName name, int64_t channels) {
    const auto width = static_cast<size_t>(channels);
    const std::vector<float> own = scope.Taps(name, channels, kernel);
    if (own.size() != rows * width) return;
    for (size_t t = 0; t < rows; ++t) {
      std::copy_n(own.data() + t * width, width, taps.data() + t * all + first);
    }
    first += width;
  };
  put(q, shape.keys());
  put(k, shape.keys());
  put(v, shape.values());
}

cache::RecurrentLayer DeltaRule::state() const {
  const int64_t record = shape.channels() + shape.decays() + shape.value_heads;
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(shape.channels()),
          .delta_heads = static_cast<int32_t>(shape.value_heads),
          .delta_value_dim = static_cast<int32_t>(shape.value_dim),
          .delta_key_dim = static_cast<int32_t>(shape.key_dim),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void DeltaRule::GrowWidths(RowWidths& widths) const {
  RowWidths::Grow(widths.projected, shape.channels());
  RowWidths::Grow(widths.convolved, shape.channels());
  RowWidths::Grow(widths.z, shape.values());
  RowWidths::Grow(widths.decay, shape.decays());
  RowWidths::Grow(widths.attended, shape.values());
}

std::span<float> DeltaRule::Update(ForwardContext& ctx, std::span<const float> mixed,
                                   std::span<const float> decay, std::span<const float> beta) const {
  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> y = ctx.work.attended.Get(ctx.rows() * shape.values());
  UpdateAt(ctx.pool, at, *this,
           {.mixed = mixed,
            .convolved = ctx.work.convolved.Get(ctx.rows() * shape.channels()),
            .decay = decay,
            .beta = beta,
            .y = y});
  return y;
}

void DeltaRule::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                       std::span<const std::byte> inputs, int32_t tokens) const {
  const auto count = static_cast<size_t>(tokens), channels = static_cast<size_t>(shape.channels());
  const auto parts =
      SplitRecords(layout.recurrent[recurrent_layer], inputs, count,
                   {channels, static_cast<size_t>(shape.decays()), static_cast<size_t>(shape.value_heads)});
  std::vector<float> convolved(count * channels), unread(count * static_cast<size_t>(shape.values()));
  const SlotView step(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  UpdateAt(pool, {.layout = &layout, .layer = recurrent_layer, .step = &step, .row_begin = row_begin}, *this,
           {.mixed = parts[0], .convolved = convolved, .decay = parts[1], .beta = parts[2], .y = unread});
}

void GatedDeltaNet::GrowWidths(RowWidths& widths) const {
  DeltaRule::GrowWidths(widths);
  RowWidths::Grow(widths.convolved, qkvz.weight.out);
  RowWidths::Grow(widths.attended, ba.weight.out);
}

void GatedDeltaNet::Project(ForwardContext& ctx, const kernels::MatMulInput& x, const Rows& to) const {
  std::array<LinearOutput, 4> parts;
  size_t count = 0;
  const auto add = [&](const Linear& linear, std::span<float> y) { parts[count++] = {&linear, y}; };
  const std::span<float> grouped = ctx.work.convolved.Get(ctx.rows() * qkvz.weight.out);
  const std::span<float> grouped_gates = ctx.work.attended.Get(ctx.rows() * ba.weight.out);
  if (query) RunSideBySide(ctx, x, {&query, &key, &value}, to.mixed);
  if (qkv) add(qkv, to.mixed);
  if (qkvz) {
    add(qkvz, grouped);
  } else {
    add(z, to.gate);
  }
  if (ba) {
    add(ba, grouped_gates);
  } else {
    add(a, to.decay);
    add(b, to.beta);
  }
  RunTogether(ctx.pool, x, std::span(parts).first(count));
  if (qkvz) Deinterleave(grouped, to);
  if (ba) DeinterleaveGates(grouped_gates, to);
}

void GatedDeltaNet::Deinterleave(std::span<const float> grouped, const Rows& to) const {
  const int64_t shared = shape.value_heads / shape.key_heads * shape.value_dim;
  const int64_t rows = std::ssize(grouped) / qkvz.weight.out;
  for (int64_t row = 0; row < rows; ++row) {
    Deinterleaver next(grouped.data() + row * qkvz.weight.out);
    float *q = to.mixed.data() + row * shape.channels(), *k = q + shape.keys(), *v = k + shape.keys();
    float* gate_row = to.gate.data() + row * shape.values();
    for (int64_t head = 0; head < shape.key_heads; ++head) {
      next.Next(shape.key_dim, q + head * shape.key_dim);
      next.Next(shape.key_dim, k + head * shape.key_dim);
      next.Next(shared, v + head * shared);
      next.Next(shared, gate_row + head * shared);
    }
  }
}

void GatedDeltaNet::DeinterleaveGates(std::span<const float> grouped, const Rows& to) const {
  const int64_t shared = shape.value_heads / shape.key_heads;
  Deinterleaver next(grouped.data());
  for (size_t at = 0; at < to.beta.size(); at += static_cast<size_t>(shared)) {
    next.Next(shared, to.beta.data() + at);
    next.Next(shared, to.decay.data() + at);
  }
}

void GatedDeltaNet::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows();
  const Rows to = {.mixed = ctx.work.projected.Get(rows * shape.channels()),
                   .gate = ctx.work.z.Get(rows * shape.values()),
                   .decay = ctx.work.decay.Get(rows * shape.value_heads),
                   .beta = ctx.work.beta.Get(rows * shape.value_heads)};
  Project(ctx, ctx.Input(x), to);
  kernels::DeltaGates(rate, time_bias, to.decay, to.beta);
  if (beta_scale != 1) kernels::Scale(ctx.pool, beta_scale, to.beta);
  const std::span<float> delta_out = Update(ctx, to.mixed, to.decay, to.beta);
  norm.Run(ctx.pool, delta_out, delta_out);
  if (sigmoid_gate) {
    kernels::SigmoidMul(ctx.pool, to.gate, delta_out);
    return out.Run(ctx.pool, ctx.Input(delta_out), y);
  }
  kernels::SiluMul(ctx.pool, delta_out, to.gate);
  out.Run(ctx.pool, ctx.Input(to.gate), y);
}

}  // namespace quire::runner::models
