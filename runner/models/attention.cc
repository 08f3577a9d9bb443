#include "runner/models/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/state_space.h"

namespace quire::runner::models {
namespace {

size_t Index(int64_t number) { return static_cast<size_t>(number); }

kernels::AttentionLayer LayerOf(const ForwardContext& ctx, const Attention& attention) {
  kernels::AttentionLayer layer{.layout = &ctx.layout,
                                .group = attention.binding.index,
                                .layer = attention.binding.layer,
                                .step = &ctx.step,
                                .row_begin = ctx.batch.row_begin};
  if (!attention.causal) layer.seen_end = ctx.batch.seen_end;
  return layer;
}

// Rows of `from` numbers at the front of x get rows of `to` numbers, filled with zeros or cut, in place.
// REQUIRES: x holds `rows` rows of the larger size.
void ResizeRows(size_t rows, size_t from, size_t to, std::span<float> x) {
  for (size_t i = 0; from > to && i < rows; ++i) std::copy_n(x.data() + i * from, to, x.data() + i * to);
  for (size_t i = rows; from < to && i-- > 0;) {
    std::copy_backward(x.data() + i * from, x.data() + (i + 1) * from, x.data() + i * to + from);
    std::fill_n(x.data() + i * to + from, to - from, 0.0F);
  }
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

std::vector<float> AlibiSlopes(int32_t heads, float largest) {
  std::vector<float> slopes;
  slopes.reserve(static_cast<size_t>(heads));
  const double below = std::exp2(std::floor(std::log2(heads)));
  for (int32_t i = 0; i < heads; ++i) {
    const double at = i < below ? i + 1 : 2 * (i - below) + 1, of = i < below ? below : 2 * below;
    slopes.push_back(static_cast<float>(std::exp2(-static_cast<double>(largest) * at / of)));
  }
  return slopes;
}

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
  // In the cache, a head's key and value have the same size.
  const int64_t size = ctx.rows() * heads * head_dim, cached = ctx.rows() * heads * cached_size();
  const int64_t keys = ctx.rows() * k.weight.out, values = v ? ctx.rows() * v.weight.out : keys;
  const int64_t stored = keys / head_dim * cached_size();
  Projections to = {.q = gated ? ctx.work.projected.Get(2 * size) : ctx.work.q.Get(cached).first(Index(size)),
                    .k = ctx.work.k.Get(stored).first(Index(keys)),
                    .v = ctx.work.v.Get(stored).first(Index(values)),
                    .gate = {}};
  std::array<LinearOutput, 4> parts = {{{&q, to.q}, {&k, to.k}, {&v, to.v}}};
  size_t count = v ? 3 : k ? 2 : 1;
  if (gate) {
    to.gate = ctx.work.attention_gate.Get(ctx.rows() * gate.linear.weight.out);
    parts[count++] = {&gate.linear, to.gate};
  }
  RunTogether(ctx.pool, x, std::span(parts).first(count));
  return to;
}

std::span<float> Attention::Queries(ForwardContext& ctx, const kernels::MatMulInput& x,
                                    std::span<float> projected) const {
  const int64_t size = ctx.rows() * heads * head_dim, cached = ctx.rows() * heads * cached_size();
  const std::span<float> all = ctx.work.q.Get(cached), queries = all.first(Index(size));
  if (gated) {
    kernels::SplitHalves(ctx.pool, projected, head_dim, queries, ctx.work.attention_gate.Get(size));
  }
  q_adapter.AddTo(ctx, x, queries);
  NormAndRotate(ctx, *this, q_norm, q_weights, queries);
  growth.Apply(ctx, queries);
  ResizeRows(Index(ctx.rows() * heads), Index(head_dim), Index(cached_size()), all);
  return all;
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
  if (value_scale != 1) kernels::Scale(ctx.pool, value_scale, values);
  NormAndRotate(ctx, *this, k_norm, k_weights, keys);
  const size_t rows = keys.size() / Index(head_dim), stored = rows * Index(cached_size());
  const std::span<float> all_keys = ctx.work.k.Get(static_cast<int64_t>(stored));
  const std::span<float> all_values = ctx.work.v.Get(static_cast<int64_t>(stored));
  ResizeRows(rows, Index(head_dim), Index(cached_size()), all_keys);
  ResizeRows(rows, Index(value_size()), Index(cached_size()), all_values);
  kernels::StoreKeyValue(ctx.pool, LayerOf(ctx, *this), all_keys, all_values);
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
  std::span<float> attended = ctx.work.attended.Get(static_cast<int64_t>(queries.size()));
  const float factor = scale != 0 ? scale : static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  const kernels::Scoring scoring{.scale = factor, .soft_cap = soft_cap, .sinks = sinks, .slopes = slopes};
  if (indexer && !ctx.work.selection.all) {
    const kernels::SelectedKeys chosen{.at = LayerOf(ctx, *this), .chosen = &ctx.work.selection};
    kernels::SelectedAttention(ctx.pool, {&chosen, 1}, heads, scoring, queries, attended);
  } else {
    kernels::Attention(ctx.pool, LayerOf(ctx, *this), ctx.work.plans[binding.index], scoring, queries,
                       attended);
  }
  const size_t results = Index(ctx.rows() * heads);
  ResizeRows(results, Index(cached_size()), Index(value_size()), attended);
  attended = attended.first(results * Index(value_size()));
  if (gate) gate.Apply(ctx, projected.gate, attended);
  if (gated) {
    kernels::SigmoidMul(ctx.pool, ctx.work.attention_gate.Get(static_cast<int64_t>(attended.size())),
                        attended);
  }
  if (out_norm) out_norm.Run(ctx.pool, attended, attended);
  out.Run(ctx.pool, ctx.Input(attended), y);
}

}  // namespace quire::runner::models
