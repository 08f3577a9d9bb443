#include "runner/models/rwkv7_mixer.h"

#include <algorithm>
#include <cstring>

#include "runner/kernels/elementwise.h"
#include "runner/models/slot_view.h"

namespace quire::runner::models {
namespace {

constexpr int64_t kUpdateInputs = 5;  // w, k, v, kk, a

// to = up(low), low = activate(down(x)).
template <class Activate>
void RunLowRank(ForwardContext& ctx, const RwkvLowRank& part, const kernels::MatMulInput& x,
                const Activate& activate, std::span<float> to) {
  const std::span<float> low = ctx.work.scores.Get(ctx.rows() * part.down.weight.out);
  part.down.Run(ctx.pool, x, low);
  activate(low);
  part.up.Run(ctx.pool, ctx.Input(low), to);
}

constexpr auto kLinear = [](std::span<float>) {};

}  // namespace

cache::RecurrentLayer RwkvTimeMix::state() const {
  const int64_t width = shape.width();
  return {.conv_tail = 1,
          .conv_dim = static_cast<int32_t>(shifts * width),
          .delta_heads = static_cast<int32_t>(shape.heads),
          .delta_value_dim = static_cast<int32_t>(shape.head_dim),
          .delta_key_dim = static_cast<int32_t>(shape.head_dim),
          .record_bytes =
              static_cast<int32_t>((shifts + kUpdateInputs) * width * static_cast<int64_t>(sizeof(float)))};
}

void RwkvTimeMix::GrowWidths(RowWidths& widths) const {
  for (int64_t* part : {&widths.convolved, &widths.z, &widths.q, &widths.decay, &widths.k,
                        &widths.attention_gate, &widths.projected, &widths.attended, &widths.shared}) {
    RowWidths::Grow(*part, shape.width());
  }
  for (const RwkvLowRank* part : {&decay, &rate, &mix, &gate}) {
    RowWidths::Grow(widths.scores, part->down.weight.out);
  }
}

kernels::RecurrentLayer RwkvTimeMix::At(const ForwardContext& ctx) const {
  return {
      .layout = &ctx.layout, .layer = recurrent_layer, .step = &ctx.step, .row_begin = ctx.batch.row_begin};
}

void RwkvTimeMix::ProjectValues(ForwardContext& ctx, const kernels::MatMulInput& x,
                                std::span<float> v) const {
  const std::span<float> first = ctx.work.shared.Get(static_cast<int64_t>(v.size()));
  value.Run(ctx.pool, x, v);
  if (!mix) {
    std::ranges::copy(v, first.begin());
    return;
  }
  const std::span<float> towards = ctx.work.attention_gate.Get(static_cast<int64_t>(v.size()));
  RunLowRank(ctx, mix, x, kLinear, towards);
  kernels::SigmoidBias(ctx.pool, mix.bias, towards);
  kernels::MixTowards(ctx.pool, first, towards, v);
}

void RwkvTimeMix::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  Workspace& work = ctx.work;
  const int64_t size = ctx.rows() * shape.width();
  const std::span<float> delta = work.convolved.Get(size), lerped = work.z.Get(size);
  const std::span<float> r = work.q.Get(size), w = work.decay.Get(size), k = work.k.Get(size),
                         v = work.v.Get(size), a = work.beta.Get(size);
  kernels::TokenShift(ctx.pool,
                      {.at = At(ctx), .first = 0, .channels = shape.width(), .x = x, .delta = delta});
  const auto with = [&](Lerp which, const auto& run) {
    kernels::Lerp(ctx.pool, x, delta, lerp[which], lerped);
    run(ctx.Input(lerped));
  };
  using Input = kernels::MatMulInput;
  with(kR, [&](const Input& in) { receptance.Run(ctx.pool, in, r); });
  with(kW, [&](const Input& in) {
    RunLowRank(
        ctx, decay, in, [&](std::span<float> low) { kernels::Tanh(ctx.pool, low); }, w);
  });
  kernels::RwkvDecay(ctx.pool, decay.bias, w);
  with(kK, [&](const Input& in) { key.Run(ctx.pool, in, k); });
  with(kV, [&](const Input& in) { ProjectValues(ctx, in, v); });
  with(kA, [&](const Input& in) { RunLowRank(ctx, rate, in, kLinear, a); });
  kernels::SigmoidBias(ctx.pool, rate.bias, a);
  std::span<float> g;
  if (gate) {
    g = work.attention_gate.Get(size);
    with(kG, [&](const Input& in) {
      RunLowRank(
          ctx, gate, in, [&](std::span<float> low) { kernels::SigmoidBias(ctx.pool, {}, low); }, g);
    });
  }
  const std::span<float> removed = work.projected.Get(size), mixed = work.attended.Get(size);
  kernels::RwkvKeys(ctx.pool, {.shape = shape,
                               .removal = removal,
                               .rate = key_rate,
                               .least = least_length,
                               .inside = inside_length,
                               .a = a,
                               .k = k,
                               .removed = removed});
  kernels::RwkvUpdate(ctx.pool, {.at = At(ctx),
                                 .shape = shape,
                                 .record_first = shifts * shape.width(),
                                 .r = r,
                                 .w = w,
                                 .k = k,
                                 .v = v,
                                 .removed = removed,
                                 .a = a,
                                 .y = mixed});
  kernels::RwkvOutput(ctx.pool, {.shape = shape,
                                 .eps = norm_eps,
                                 .weight = norm_weight,
                                 .bias = norm_bias,
                                 .bonus = bonus,
                                 .r = r,
                                 .k = k,
                                 .v = v,
                                 .gate = g,
                                 .y = mixed});
  out.Run(ctx.pool, ctx.Input(mixed), y);
}

void RwkvTimeMix::Replay(const cache::Layout& layout, ThreadPool& pool, std::byte* slot,
                         std::span<const std::byte> inputs, int32_t tokens) const {
  const auto width = static_cast<size_t>(shape.width()), count = static_cast<size_t>(tokens);
  const auto column = static_cast<size_t>(shifts) * width;
  const auto parts = SplitRecords(layout.recurrent[recurrent_layer], inputs, count,
                                  {column, width, width, width, width, width});
  if (count > 0) {
    std::memcpy(slot + cache::ConvOffset(layout, recurrent_layer), parts[0].data() + (count - 1) * column,
                column * sizeof(float));
  }
  const SlotView step(slot, tokens);
  const int32_t row_begin[] = {0, tokens};
  std::vector<float> unread(count * width);
  const std::vector<float> no_query(count * width);
  kernels::RwkvUpdate(
      pool, {.at = {.layout = &layout, .layer = recurrent_layer, .step = &step, .row_begin = row_begin},
             .shape = shape,
             .record_first = 0,
             .r = no_query,
             .w = parts[1],
             .k = parts[2],
             .v = parts[3],
             .removed = parts[4],
             .a = parts[5],
             .y = unread});
}

void RwkvChannelMix::Run(ForwardContext& ctx, const kernels::RecurrentLayer& at, std::span<const float> x,
                         std::span<float> y) const {
  const auto width = static_cast<int64_t>(lerp.size());
  const std::span<float> delta = ctx.work.convolved.Get(ctx.rows() * width);
  const std::span<float> lerped = ctx.work.z.Get(ctx.rows() * width);
  kernels::TokenShift(ctx.pool, {.at = at, .first = width, .channels = width, .x = x, .delta = delta});
  kernels::Lerp(ctx.pool, x, delta, lerp, lerped);
  const std::span<float> wide = ctx.work.gate.Get(ctx.rows() * key.weight.out);
  key.Run(ctx.pool, ctx.Input(lerped), wide);
  kernels::SquaredRelu(ctx.pool, wide);
  value.Run(ctx.pool, ctx.Input(wide), y);
}

}  // namespace quire::runner::models
