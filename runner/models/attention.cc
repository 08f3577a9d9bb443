#include "runner/models/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/state_space.h"

namespace quire::runner::models {
namespace {

kernels::AttentionLayer LayerOf(const ForwardContext& ctx, const Attention& attention) {
  kernels::AttentionLayer layer{.layout = &ctx.layout,
                                .group = attention.binding.index,
                                .layer = attention.binding.layer,
                                .step = &ctx.step,
                                .row_begin = ctx.batch.row_begin};
  if (!attention.causal) layer.seen_end = ctx.batch.seen_end;
  return layer;
}

void Clip(float limit, std::span<float> x) {
  for (float& value : x) value = std::clamp(value, -limit, limit);
}

// Norm and rotation in the order of the family.
void NormAndRotate(ForwardContext& ctx, const Attention& attention, const RmsNorm& norm,
                   std::span<const float> weights, std::span<float> x) {
  if (attention.layer_norms) {
    kernels::LayerNorm(ctx.pool, x, norm.weight, {}, norm.eps, x);
  } else if (norm && !attention.norm_rotated) {
    norm.Run(ctx.pool, x, x);
  }
  if (!weights.empty()) kernels::ScaleColumns(ctx.pool, weights, x);
  if (attention.clip > 0) Clip(attention.clip, x);
  if (attention.rotary != nullptr) attention.rotary->Apply(ctx, attention.head_dim, x);
  if (norm && attention.norm_rotated) norm.Run(ctx.pool, x, x);
}

}  // namespace

void QueryGrowth::Apply(const ForwardContext& ctx, std::span<float> queries) const {
  if (beta == 0) return;
  const auto rows = static_cast<size_t>(ctx.rows());
  const size_t width = rows == 0 ? 0 : queries.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const int64_t contexts = (ctx.work.positions[row] + offset) / context;
    if (contexts == 0) continue;
    const float factor = 1 + beta * std::log(1 + static_cast<float>(contexts));
    for (float& q : queries.subspan(row * width, width)) q *= factor;
  }
}

Attention::Projections Attention::Project(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const int64_t size = ctx.rows() * heads * head_dim;
  Projections to = {.q = gated ? ctx.work.projected.Get(2 * size) : ctx.work.q.Get(size),
                    .k = ctx.work.k.Get(ctx.rows() * k.weight.out),
                    .v = ctx.work.v.Get(ctx.rows() * k.weight.out)};
  std::array<LinearOutput, 3> parts = {{{&q, to.q}, {&k, to.k}, {&v, to.v}}};
  const size_t count = v ? 3 : k ? 2 : 1;
  RunTogether(ctx.pool, x, std::span(parts).first(count));
  return to;
}

std::span<float> Attention::Queries(ForwardContext& ctx, const kernels::MatMulInput& x,
                                    std::span<float> projected) const {
  const int64_t size = ctx.rows() * heads * head_dim;
  const std::span<float> queries = ctx.work.q.Get(size);
  if (gated) {
    kernels::SplitHalves(ctx.pool, projected, head_dim, queries, ctx.work.attention_gate.Get(size));
  }
  q_adapter.AddTo(ctx, x, queries);
  NormAndRotate(ctx, *this, q_norm, q_weights, queries);
  growth.Apply(ctx, queries);
  return queries;
}

void Attention::StoreKeys(ForwardContext& ctx, const kernels::MatMulInput& x, std::span<float> keys,
                          std::span<float> values) const {
  k_adapter.AddTo(ctx, x, keys);
  if (key_scale != 1) kernels::Scale(ctx.pool, key_scale, keys);
  if (v) {
    v_adapter.AddTo(ctx, x, values);
  } else {
    std::ranges::copy(keys, values.begin());
  }
  if (v_norm) v_norm.Run(ctx.pool, values, values);
  if (clip > 0) Clip(clip, values);
  NormAndRotate(ctx, *this, k_norm, k_weights, keys);
  kernels::StoreKeyValue(ctx.pool, LayerOf(ctx, *this), keys, values);
}

void Attention::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const kernels::MatMulInput in = ctx.Input(x);
  if (indexer) {
    indexer->Store(ctx, in);
    indexer->Choose(ctx, in);
  }
  const Projections projected = Project(ctx, in);
  const std::span<float> queries = Queries(ctx, in, projected.q);
  if (k) StoreKeys(ctx, in, projected.k, projected.v);
  const std::span<float> attended = ctx.work.attended.Get(static_cast<int64_t>(queries.size()));
  const float factor = scale != 0 ? scale : static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  const kernels::Scoring scoring{.scale = factor, .soft_cap = soft_cap, .sinks = sinks};
  if (indexer && !ctx.work.selection.all) {
    const kernels::SelectedKeys chosen{.at = LayerOf(ctx, *this), .chosen = &ctx.work.selection};
    kernels::SelectedAttention(ctx.pool, {&chosen, 1}, heads, scoring, queries, attended);
  } else {
    kernels::Attention(ctx.pool, LayerOf(ctx, *this), ctx.work.plans[binding.index], scoring, queries,
                       attended);
  }
  if (gated) {
    kernels::SigmoidMul(ctx.pool, ctx.work.attention_gate.Get(static_cast<int64_t>(attended.size())),
                        attended);
  }
  out.Run(ctx.pool, ctx.Input(attended), y);
}

}  // namespace quire::runner::models
