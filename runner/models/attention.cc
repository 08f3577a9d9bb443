#include "runner/models/attention.h"

#include <algorithm>
#include <cmath>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"

namespace quire::runner::models {
namespace {

kernels::AttentionLayer LayerOf(const Pass& pass, const CachePlace& place) {
  return {.layout = &pass.layout,
          .group = place.index,
          .layer = place.layer,
          .step = &pass.step,
          .row_begin = pass.batch.row_begin};
}

}  // namespace

std::span<float> Attention::Queries(Pass& pass, const kernels::MatMulInput& x) const {
  const int64_t size = pass.rows() * heads * head_dim;
  const std::span<float> queries = pass.work.q.Get(size);
  if (gated) {
    const std::span<float> both = pass.work.projected.Get(2 * size);
    q.Run(pass.pool, x, both);
    kernels::SplitHalves(pass.pool, both, head_dim, queries, pass.work.attention_gate.Get(size));
  } else {
    q.Run(pass.pool, x, queries);
  }
  if (q_norm) q_norm.Run(pass.pool, queries, queries);
  rotary->Apply(pass, head_dim, queries);
  return queries;
}

void Attention::StoreKeys(Pass& pass, const kernels::MatMulInput& x) const {
  const std::span<float> keys = pass.work.k.Get(pass.rows() * k.weight.out);
  const std::span<float> values = pass.work.v.Get(pass.rows() * k.weight.out);
  k.Run(pass.pool, x, keys);
  if (v) {
    v.Run(pass.pool, x, values);
  } else {
    std::ranges::copy(keys, values.begin());
  }
  if (v_norm) v_norm.Run(pass.pool, values, values);
  if (k_norm) k_norm.Run(pass.pool, keys, keys);
  rotary->Apply(pass, head_dim, keys);
  kernels::StoreKeyValue(pass.pool, LayerOf(pass, place), keys, values);
}

void Attention::Run(Pass& pass, std::span<const float> x, std::span<float> y) const {
  const kernels::MatMulInput in = pass.Input(x);
  const std::span<float> queries = Queries(pass, in);
  if (k) StoreKeys(pass, in);
  const std::span<float> attended = pass.work.attended.Get(static_cast<int64_t>(queries.size()));
  const float factor = scale != 0 ? scale : static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  kernels::Attention(pass.pool, LayerOf(pass, place), pass.work.plans[place.index],
                     {.scale = factor, .soft_cap = soft_cap}, queries, attended);
  if (gated) {
    kernels::SigmoidMul(pass.pool, pass.work.attention_gate.Get(static_cast<int64_t>(attended.size())),
                        attended);
  }
  out.Run(pass.pool, pass.Input(attended), y);
}

}  // namespace quire::runner::models
