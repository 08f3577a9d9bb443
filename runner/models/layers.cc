#include "runner/models/layers.h"

#include <cmath>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/short_conv.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::models {

std::span<float> Scratch::Get(int64_t size) {
  const auto floats = static_cast<size_t>(size);
  if (memory_.size() < floats) memory_.resize(floats);
  return std::span(memory_).first(floats);
}

void Linear::Run(ThreadPool& pool, std::span<const float> x, int64_t rows, std::span<float> y) const {
  kernels::MatMul(pool, x, rows, weight, y);
  if (!bias.empty()) kernels::AddBias(bias, y);
}

void RmsNorm::Run(ThreadPool& pool, std::span<const float> x, std::span<float> y) const {
  kernels::RmsNorm(pool, x, weight, eps, y);
}

RotaryEmbedding::RotaryEmbedding(double theta, int32_t dims) {
  for (int32_t i = 0; i < dims / 2; ++i) {
    frequencies_.push_back(static_cast<float>(std::pow(theta, -2.0 * i / dims)));
  }
}

void RotaryEmbedding::Prepare(Pass& pass) const {
  std::vector<int64_t>& positions = pass.work.positions;
  positions.clear();
  for (size_t i = 0; i + 1 < pass.batch.row_begin.size(); ++i) {
    const int64_t rows = pass.batch.row_begin[i + 1] - pass.batch.row_begin[i];
    for (int64_t row = 0; row < rows; ++row) positions.push_back(pass.step.offset(i) + row);
  }
  const int64_t size = pass.rows() * static_cast<int64_t>(frequencies_.size());
  kernels::RopeTable(pass.pool, positions, frequencies_, pass.work.cos.Get(size), pass.work.sin.Get(size));
}

void RotaryEmbedding::Apply(Pass& pass, int32_t head_dim, std::span<float> x) const {
  const auto n = static_cast<int64_t>(frequencies_.size());
  kernels::Rope(pass.pool, pass.work.cos.Get(pass.rows() * n), pass.work.sin.Get(pass.rows() * n), n,
                head_dim, pass.rows(), x);
}

void Attention::Run(Pass& pass, std::span<const float> x, std::span<float> y) const {
  const int32_t head_dim = pass.layout.groups[group].head_dim;
  const std::span<float> queries = pass.work.q.Get(pass.rows() * q.weight.out);
  const std::span<float> keys = pass.work.k.Get(pass.rows() * k.weight.out);
  const std::span<float> values = pass.work.v.Get(pass.rows() * v.weight.out);
  const std::span<float> attended = pass.work.attended.Get(pass.rows() * q.weight.out);
  q.Run(pass.pool, x, pass.rows(), queries);
  k.Run(pass.pool, x, pass.rows(), keys);
  v.Run(pass.pool, x, pass.rows(), values);
  q_norm.Run(pass.pool, queries, queries);
  k_norm.Run(pass.pool, keys, keys);
  rotary->Apply(pass, head_dim, queries);
  rotary->Apply(pass, head_dim, keys);

  const kernels::AttentionLayer at{.layout = &pass.layout,
                                   .group = group,
                                   .layer = layer,
                                   .step = &pass.step,
                                   .row_begin = pass.batch.row_begin};
  kernels::StoreKeyValue(pass.pool, at, keys, values);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  kernels::Attention(pass.pool, at, pass.work.attention, scale, queries, attended);
  out.Run(pass.pool, attended, pass.rows(), y);
}

void ShortConvolution::Run(Pass& pass, std::span<const float> x, std::span<float> y) const {
  const std::span<float> gates = pass.work.gates.Get(pass.rows() * 3 * channels);
  const std::span<float> convolved = pass.work.convolved.Get(pass.rows() * channels);
  in.Run(pass.pool, x, pass.rows(), gates);
  std::vector<float*>& tails = pass.work.tails;
  tails.clear();
  for (size_t i = 0; i < pass.step.sequences(); ++i) {
    std::byte* tail = pass.step.Slot(i) + cache::ConvOffset(pass.layout, recurrent_layer);
    tails.push_back(reinterpret_cast<float*>(tail));
  }
  kernels::ShortConv(pass.pool, {.channels = channels,
                                 .kernel = kernel,
                                 .taps = taps,
                                 .bias = bias,
                                 .bcx = gates,
                                 .row_begin = pass.batch.row_begin,
                                 .tails = tails,
                                 .y = convolved});
  out.Run(pass.pool, convolved, pass.rows(), y);
}

void SwiGlu::Run(Pass& pass, std::span<const float> x, std::span<float> y) const {
  const std::span<float> gated = pass.work.gate.Get(pass.rows() * gate.weight.out);
  const std::span<float> wide = pass.work.up.Get(pass.rows() * up.weight.out);
  gate.Run(pass.pool, x, pass.rows(), gated);
  up.Run(pass.pool, x, pass.rows(), wide);
  kernels::SiluMul(pass.pool, wide, gated);
  down.Run(pass.pool, gated, pass.rows(), y);
}

}  // namespace quire::runner::models
