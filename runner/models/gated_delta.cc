#include "runner/models/gated_delta.h"

#include <algorithm>
#include <cstring>

#include "runner/kernels/elementwise.h"
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

}  // namespace

cache::RecurrentLayer GatedDeltaNet::state() const {
  const int64_t record = shape.channels() + 2 * shape.value_heads;
  return {.conv_tail = static_cast<int32_t>(kernel - 1),
          .conv_dim = static_cast<int32_t>(shape.channels()),
          .delta_heads = static_cast<int32_t>(shape.value_heads),
          .delta_value_dim = static_cast<int32_t>(shape.value_dim),
          .delta_key_dim = static_cast<int32_t>(shape.key_dim),
          .record_bytes = static_cast<int32_t>(record * static_cast<int64_t>(sizeof(float)))};
}

void GatedDeltaNet::ProjectApart(ForwardContext& ctx, const kernels::MatMulInput& x,
                                 std::span<float> mixed) const {
  int64_t first = 0;
  for (const Linear* part : {&query, &key, &value}) {
    const int64_t width = part->weight.out;
    const std::span<float> rows = ctx.work.convolved.Get(ctx.rows() * width);
    part->Run(ctx.pool, x, rows);
    for (int64_t row = 0; row < ctx.rows(); ++row) {
      std::copy_n(rows.data() + row * width, width, mixed.data() + row * shape.channels() + first);
    }
    first += width;
  }
}

void GatedDeltaNet::Project(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> mixed,
                            std::span<float> gate) const {
  if (query) {
    ProjectApart(ctx, x, mixed);
    z.Run(ctx.pool, x, gate);
    return;
  }
  if (!qkvz) {
    qkv.Run(ctx.pool, x, mixed);
    z.Run(ctx.pool, x, gate);
    return;
  }
  const std::span<float> grouped = ctx.work.convolved.Get(ctx.rows() * qkvz.weight.out);
  qkvz.Run(ctx.pool, x, grouped);
  const int64_t shared = shape.value_heads / shape.key_heads * shape.value_dim;
  for (int64_t row = 0; row < ctx.rows(); ++row) {
    Deinterleaver next(grouped.data() + row * qkvz.weight.out);
    float *q = mixed.data() + row * shape.channels(), *k = q + shape.keys(), *v = k + shape.keys();
    float* gate_row = gate.data() + row * shape.values();
    for (int64_t head = 0; head < shape.key_heads; ++head) {
      next.Next(shape.key_dim, q + head * shape.key_dim);
      next.Next(shape.key_dim, k + head * shape.key_dim);
      next.Next(shared, v + head * shared);
      next.Next(shared, gate_row + head * shared);
    }
  }
}

void GatedDeltaNet::ProjectGates(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> decay,
                                 std::span<float> beta) const {
  if (ba) {
    const std::span<float> grouped = ctx.work.convolved.Get(ctx.rows() * ba.weight.out);
    ba.Run(ctx.pool, x, grouped);
    const int64_t shared = shape.value_heads / shape.key_heads;
    for (int64_t row = 0; row < ctx.rows(); ++row) {
      Deinterleaver next(grouped.data() + row * ba.weight.out);
      for (int64_t at = row * shape.value_heads; at < (row + 1) * shape.value_heads; at += shared) {
        next.Next(shared, beta.data() + at);
        next.Next(shared, decay.data() + at);
      }
    }
  } else {
    a.Run(ctx.pool, x, decay);
    b.Run(ctx.pool, x, beta);
  }
  kernels::DeltaGates(rate, time_bias, decay, beta);
  if (beta_scale != 1) kernels::Scale(ctx.pool, beta_scale, beta);
}

void GatedDeltaNet::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t rows = ctx.rows();
  const std::span<float> mixed = ctx.work.projected.Get(rows * shape.channels());
  const std::span<float> gate = ctx.work.z.Get(rows * shape.values());
  const std::span<float> decay = ctx.work.decay.Get(rows * shape.value_heads);
  const std::span<float> beta = ctx.work.beta.Get(rows * shape.value_heads);
  const kernels::MatMulInput in = ctx.Input(x);
  Project(ctx, in, mixed, gate);
  ProjectGates(ctx, in, decay, beta);

  const kernels::RecurrentLayer at{
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
  const std::span<float> convolved = ctx.work.convolved.Get(rows * shape.channels());
  kernels::ShortConv(ctx.pool, {.at = at,
                                .form = kernels::ConvForm::kSilu,
                                .channels = shape.channels(),
                                .kernel = kernel,
                                .taps = taps,
                                .bias = {},
                                .input = mixed,
                                .y = convolved});
  const std::span<float> delta_out = ctx.work.attended.Get(rows * shape.values());
  kernels::GatedDelta(
      ctx.pool, {.at = at, .shape = shape, .qkv = convolved, .decay = decay, .beta = beta, .y = delta_out});
  norm.Run(ctx.pool, delta_out, delta_out);
  kernels::SiluMul(ctx.pool, delta_out, gate);
  out.Run(ctx.pool, ctx.Input(gate), y);
}

void GatedDeltaNet::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                           std::span<const std::byte> inputs, int32_t tokens) const {
  const auto channels = static_cast<size_t>(shape.channels()), heads = static_cast<size_t>(shape.value_heads);
  const auto count = static_cast<size_t>(tokens), stride = channels + 2 * heads;
  std::vector<float> mixed(count * channels), convolved(mixed.size()), decay(count * heads),
      beta(decay.size());
  std::vector<float> delta_out(count * static_cast<size_t>(shape.values()));
  for (size_t t = 0; t < count; ++t) {
    const std::byte* record = inputs.data() + t * stride * sizeof(float);
    std::memcpy(mixed.data() + t * channels, record, channels * sizeof(float));
    std::memcpy(decay.data() + t * heads, record + channels * sizeof(float), heads * sizeof(float));
    std::memcpy(beta.data() + t * heads, record + (channels + heads) * sizeof(float), heads * sizeof(float));
  }
  const SlotView step(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  const kernels::RecurrentLayer at{
      .layout = &layout, .layer = recurrent_layer, .step = &step, .row_begin = row_begin};
  kernels::ShortConv(pool, {.at = at,
                            .form = kernels::ConvForm::kSilu,
                            .channels = shape.channels(),
                            .kernel = kernel,
                            .taps = taps,
                            .bias = {},
                            .input = mixed,
                            .y = convolved});
  kernels::GatedDelta(
      pool, {.at = at, .shape = shape, .qkv = convolved, .decay = decay, .beta = beta, .y = delta_out});
}

}  // namespace quire::runner::models
