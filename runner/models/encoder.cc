#include "runner/models/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/encoder_ops.h"
#include "runner/kernels/panels.h"
#include "runner/models/distance_bias.h"
#include "runner/models/linear_then.h"

namespace quire::runner::models {
namespace {

// The slopes of ALiBi for any number of heads: those of the power of 2 below, then every other one of twice as many.
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

void ReportTo(ActivationHook* hook, const std::string& name, std::span<const float> values, int64_t rows) {
  if (hook != nullptr) hook->Activation(name, values, rows);
}

}  // namespace

Encoder::Encoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
                 const EncoderForm& form, EncoderHead head)
    : files_(std::move(files)), architecture_(files_->architecture()), form_(form), head_(std::move(head)) {
  const EncoderNames& names = form_.names;
  const TensorScope global = bind.Named(names.prefix);
  tokens_ = global.Matrix(names.tokens, form_.vocab, form_.hidden);
  const auto table = [&](TensorName name, int32_t rows, int32_t width) {
    if (rows == 0) return std::vector<float>();
    const std::string checkpoint = fmt::format("{}.weight", name.hugging_face);
    const std::string gguf = fmt::format("{}.weight", name.gguf);
    return global.Table({checkpoint, gguf}, rows, width);
  };
  types_ = table(names.types, form_.types, form_.hidden);
  positions_ = table(names.positions, form_.position_rows, form_.hidden);
  if (!names.embedding_norm.gguf.empty()) embedding_norm_ = BindNorm(global, names.embedding_norm);
  if (form_.distance_bias) {
    const std::vector<float> buckets = table(names.distance_bias, kBiasBuckets, form_.heads);
    if (!buckets.empty()) distance_bias_ = SpreadBiases(buckets, form_.heads);
  }
  if (form_.alibi > 0) slopes_ = AlibiSlopes(form_.heads, form_.alibi);
  layers_.resize(static_cast<size_t>(form_.layers));
  for (size_t i = 0; i < layers_.size(); ++i) BindLayer(bind, i);
  if (!names.final_norm.gguf.empty()) final_norm_ = BindNorm(global, names.final_norm);
  work_.angles.resize(form_.ropes.size());
  parameters_ = bind.parameters();
  weight_bytes_ = bind.bytes();
  resident_bytes_ = bind.resident_bytes();
}

Norm Encoder::BindNorm(const TensorScope& scope, TensorName name, int64_t size) const {
  if (size == 0) size = form_.hidden;
  Norm norm{.kind = form_.norm, .weight = scope.Norm(name, size), .bias = {}, .eps = form_.norm_eps};
  if (norm.kind == NormKind::kLayer) norm.bias = scope.BiasOf(name, size, form_.norm_bias);
  if (norm.kind == NormKind::kZeroCenteredRms && !scope.gguf()) {
    for (float& weight : norm.weight) weight += 1;
  }
  return norm;
}

void Encoder::BindLayer(TensorBinder& bind, size_t index) {
  const EncoderNames& names = form_.names;
  const TensorScope scope =
      bind.Named(bind.gguf() ? fmt::format("blk.{}.", index)
                             : fmt::format("{}{}{}.", names.prefix, names.layers, index));
  const int64_t hidden = form_.hidden, queries = int64_t{form_.heads} * form_.head_dim,
                keys = int64_t{form_.kv_heads} * form_.head_dim;
  Layer& layer = layers_[index];
  if (scope.HasWeight(names.qkv)) {
    const int64_t sizes[] = {queries, keys, keys};
    std::vector<Linear> parts = scope.BindRows(names.qkv, sizes, hidden, form_.attention_bias);
    layer.q = std::move(parts[0]);
    layer.k = std::move(parts[1]);
    layer.v = std::move(parts[2]);
  } else {
    layer.q = scope.BindLinear(names.q, queries, hidden, form_.attention_bias);
    layer.k = scope.BindLinear(names.k, keys, hidden, form_.attention_bias);
    layer.v = scope.BindLinear(names.v, keys, hidden, form_.attention_bias);
  }
  layer.out = scope.BindLinear(names.out, hidden, queries, form_.out_bias);
  if (form_.qk_norm) {
    const float shift = form_.norm == NormKind::kZeroCenteredRms && !scope.gguf() ? 1 : 0;
    for (const auto& [norm, name] : {std::pair(&layer.q_norm, names.q_norm), {&layer.k_norm, names.k_norm}}) {
      *norm = {.weight = scope.Norm(name, form_.head_dim), .eps = form_.norm_eps};
      for (float& weight : norm->weight) weight += shift;
    }
  }
  if (form_.wide_qk_norm) {
    layer.wide_q_norm = BindNorm(scope, names.q_norm, queries);
    layer.wide_k_norm = BindNorm(scope, names.k_norm, keys);
  }
  BindMlp(scope, index);
  if (index > 0 || form_.first_norm) layer.attention_norm = BindNorm(scope, names.attention_norm);
  layer.mlp_norm = BindNorm(scope, names.mlp_norm);
  if (form_.second_attention_norm) layer.second_attention_norm = BindNorm(scope, names.second_attention_norm);
  if (form_.norms != EncoderNorms::kAround) return;
  layer.post_attention_norm = BindNorm(scope, names.post_attention_norm);
  layer.post_mlp_norm = BindNorm(scope, names.post_mlp_norm);
}

void Encoder::BindMlp(const TensorScope& scope, size_t index) {
  const EncoderNames& names = form_.names;
  const int64_t hidden = form_.hidden, wide = form_.feed_forward;
  Layer& layer = layers_[index];
  if (form_.experts.Has(index)) {
    layer.experts = BindEncoderExperts(scope, form_.experts, hidden, wide);
    return;
  }
  if (form_.gated && scope.HasWeight(names.gate_up)) {
    const int64_t sizes[] = {wide, wide};
    std::vector<Linear> parts = scope.BindRows(names.gate_up, sizes, hidden, form_.mlp_bias);
    layer.gate = std::move(parts[form_.gate_first ? 0 : 1]);
    layer.up = std::move(parts[form_.gate_first ? 1 : 0]);
  } else {
    layer.up = scope.BindLinear(names.up, wide, hidden, form_.mlp_bias);
    if (form_.gated) layer.gate = scope.BindLinear(names.gate, wide, hidden, form_.mlp_bias);
  }
  layer.down = scope.BindLinear(names.down, hidden, wide, form_.down_bias);
}

int64_t Encoder::scratch_bytes(int64_t rows) const {
  const int64_t queries = int64_t{form_.heads} * form_.head_dim,
                keys = int64_t{form_.kv_heads} * form_.head_dim;
  int64_t angles = 0;
  for (const RopeSpec& rope : form_.ropes) angles += 2 * static_cast<int64_t>(rope.frequencies.size());
  if (form_.experts.experts > 0) {
    angles += EncoderExperts::FloatsOf(form_.experts, form_.hidden, form_.feed_forward);
  }
  const int64_t floats = (form_.second_attention_norm ? 5 : 4) * int64_t{form_.hidden} + 2 * queries +
                         2 * keys + 2 * int64_t{form_.feed_forward} + angles;
  const int64_t places = std::max(form_.experts.chosen, 1);
  const int64_t widest =
      std::max({places * int64_t{form_.hidden}, queries, places * int64_t{form_.feed_forward}});
  return rows *
         (floats * static_cast<int64_t>(sizeof(float)) + kernels::QuantizedActivations::BytesOf(widest));
}

void Encoder::Embed(const EncoderBatch& batch, ThreadPool& pool, std::span<float> h) {
  kernels::EmbeddingRows(tokens_, batch.tokens, h);
  if (form_.embedding_scale != 1) kernels::Scale(pool, form_.embedding_scale, h);
  const auto width = static_cast<size_t>(form_.hidden);
  work_.positions.clear();
  for (size_t text = 0; text + 1 < batch.row_begin.size(); ++text) {
    const int32_t count = batch.row_begin[text + 1] - batch.row_begin[text];
    for (int32_t i = 0; i < count; ++i) work_.positions.push_back(i);
  }
  const auto add = [&](size_t row, const std::vector<float>& table, size_t at) {
    for (size_t i = 0; i < width; ++i) h[row * width + i] += table[at * width + i];
  };
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    if (form_.types > 0) {
      const int32_t type = row < batch.types.size() ? batch.types[row] : 0;
      add(row, types_, static_cast<size_t>(type < form_.types ? type : 0));
    }
    if (form_.position_rows > 0) {
      add(row, positions_, static_cast<size_t>(work_.positions[row] + form_.position_offset));
    }
  }
  if (embedding_norm_) embedding_norm_.Run(pool, h, h);
  for (size_t i = 0; i < form_.ropes.size(); ++i) {
    const RopeSpec& rope = form_.ropes[i];
    const auto size = static_cast<int64_t>(work_.positions.size() * rope.frequencies.size());
    kernels::RopeTable(pool, work_.positions, rope.frequencies, work_.angles[i].cos.Get(size),
                       work_.angles[i].sin.Get(size), rope.magnitude);
  }
}

void Encoder::Rotate(ThreadPool& pool, size_t layer, int64_t rows, std::span<float> x) {
  if (form_.rope_of.empty() || form_.rope_of[layer] < 0) return;
  const auto index = static_cast<size_t>(form_.rope_of[layer]);
  const RopeSpec& rope = form_.ropes[index];
  const auto frequencies = static_cast<int64_t>(rope.frequencies.size());
  kernels::Rope(pool, work_.angles[index].cos.Get(rows * frequencies),
                work_.angles[index].sin.Get(rows * frequencies), frequencies, form_.head_dim, rows, x,
                rope.pairs);
}

void Encoder::Attend(const EncoderBatch& batch, ThreadPool& pool, size_t index, std::span<const float> x,
                     std::span<float> y) {
  const Layer& layer = layers_[index];
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const std::span<float> q = work_.q.Get(rows * form_.heads * form_.head_dim),
                         k = work_.k.Get(rows * form_.kv_heads * form_.head_dim),
                         v = work_.v.Get(rows * form_.kv_heads * form_.head_dim);
  {
    const kernels::MatMulInput in(x, rows, work_.quantized);
    RunTogether(pool, in, {{&layer.q, q}, {&layer.k, k}, {&layer.v, v}});
  }
  if (layer.q_norm) layer.q_norm.Run(pool, q, q);
  if (layer.k_norm) layer.k_norm.Run(pool, k, k);
  if (layer.wide_q_norm) layer.wide_q_norm.Run(pool, q, q);
  if (layer.wide_k_norm) layer.wide_k_norm.Run(pool, k, k);
  Rotate(pool, index, rows, q);
  Rotate(pool, index, rows, k);
  const std::span<float> attended = work_.attended.Get(static_cast<int64_t>(q.size()));
  const float scale =
      form_.scale != 0 ? form_.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(form_.head_dim)));
  kernels::AttendBothWays(pool,
                          {.row_begin = batch.row_begin,
                           .heads = form_.heads,
                           .kv_heads = form_.kv_heads,
                           .head_dim = form_.head_dim,
                           .scale = scale,
                           .reach = form_.reach.empty() ? -1 : form_.reach[index],
                           .slopes = slopes_,
                           .distance_bias = distance_bias_},
                          q, k, v, attended);
  layer.out.Run(pool, {attended, rows, work_.quantized}, y);
}

void Encoder::FeedForward(ThreadPool& pool, const Layer& layer, int64_t rows, std::span<const float> x,
                          std::span<float> y) {
  if (layer.experts) {
    return layer.experts.Run(pool, form_.activation, rows, x, work_.experts, work_.quantized, y);
  }
  const std::span<float> up = work_.up.Get(rows * form_.feed_forward);
  std::span<float> wide = up;
  {
    const kernels::MatMulInput in(x, rows, work_.quantized);
    const auto width = static_cast<size_t>(form_.feed_forward);
    if (form_.gated) {
      wide = work_.gate.Get(rows * form_.feed_forward);
      layer.up.Run(pool, in, up);
      RunThen(
          pool, layer.gate, in,
          [&](size_t row, size_t begin, std::span<float> gate) {
            GateWith(form_.activation, up.subspan(row * width + begin, gate.size()), gate);
          },
          wide);
    } else {
      RunThen(
          pool, layer.up, in,
          [&](size_t, size_t, std::span<float> values) { Activate(form_.activation, values); }, up);
    }
  }
  layer.down.Run(pool, {wide, rows, work_.quantized}, y);
}

void Encoder::Forward(const EncoderBatch& batch, ThreadPool& pool, std::span<float> hidden,
                      ActivationHook* hook) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const std::span<float> h = hidden;
  Embed(batch, pool, h);
  ReportTo(hook, "hidden.embed", h, rows);
  const std::span<float> normed = work_.normed.Get(static_cast<int64_t>(h.size())),
                         mixed = work_.mixed.Get(static_cast<int64_t>(h.size()));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const bool after = form_.norms == EncoderNorms::kAfter;
    const auto before = [&](const Norm& norm) -> std::span<const float> {
      if (after || !norm) return h;
      norm.Run(pool, h, normed);
      return normed;
    };
    const auto add = [&](const Norm& norm, const Norm& post) {
      if (post) post.Run(pool, mixed, mixed);
      kernels::Add(pool, mixed, h);
      if (after) norm.Run(pool, h, h);
    };
    const std::span<float> residual =
        layer.second_attention_norm ? work_.residual.Get(static_cast<int64_t>(h.size())) : std::span<float>();
    std::copy_n(h.begin(), residual.size(), residual.begin());
    Attend(batch, pool, i, before(layer.attention_norm), mixed);
    add(layer.attention_norm, layer.post_attention_norm);
    if (layer.second_attention_norm) {
      kernels::Add(pool, residual, h);
      layer.second_attention_norm.Run(pool, h, h);
    }
    FeedForward(pool, layer, rows, before(layer.mlp_norm), mixed);
    add(layer.mlp_norm, layer.post_mlp_norm);
    ReportTo(hook, fmt::format("hidden.layer{}", i), h, rows);
  }
  if (final_norm_) final_norm_.Run(pool, h, h);
}

}  // namespace quire::runner::models
