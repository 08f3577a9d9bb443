#include "runner/models/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/models/attention.h"
#include "runner/models/distance_bias.h"

namespace quire::runner::models {

Encoder::Encoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
                 const EncoderForm& form, EncoderHead head)
    : files_(std::move(files)), architecture_(files_->architecture()), form_(form), head_(std::move(head)) {
  const EncoderNames& names = form_.names;
  const TensorScope global = bind.Named(names.prefix);
  if (form_.vocab > 0) tokens_ = global.Matrix(names.tokens, form_.vocab, form_.hidden);
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
      bind.Named(bind.gguf() ? fmt::format("{}blk.{}.", names.prefix, index)
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
  if (form_.v_norm) {
    layer.v_norm = {.weight = std::vector<float>(static_cast<size_t>(form_.head_dim), 1.0F),
                    .eps = form_.norm_eps};
  }
  if (form_.clipped) BindClips(scope, layer);
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

void Encoder::BindClips(const TensorScope& scope, Layer& layer) const {
  const EncoderNames& names = form_.names;
  const auto bound = [&](TensorName name, const char* which, float none) {
    constexpr std::string_view kInner = ".linear";  // of the matrix
    if (name.hugging_face.ends_with(kInner)) name.hugging_face.remove_suffix(kInner.size());
    const std::string checkpoint = fmt::format("{}.{}", name.hugging_face, which),
                      gguf = fmt::format("{}.{}", name.gguf, which);
    return scope.Has({checkpoint, gguf}) ? scope.Scalar({checkpoint, gguf}) : none;
  };
  const auto clip = [&](TensorName name) {
    constexpr float kMost = std::numeric_limits<float>::max();
    return Clip{.in_min = bound(name, "input_min", -kMost),
                .in_max = bound(name, "input_max", kMost),
                .out_min = bound(name, "output_min", -kMost),
                .out_max = bound(name, "output_max", kMost)};
  };
  layer.clips = Clips{.q = clip(names.q),
                      .k = clip(names.k),
                      .v = clip(names.v),
                      .out = clip(names.out),
                      .up = clip(names.up),
                      .gate = clip(names.gate),
                      .down = clip(names.down)};
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
  const int64_t queries = int64_t{form_.heads} * form_.head_dim;
  int64_t floats = (form_.second_attention_norm ? 3 : 2) * int64_t{form_.hidden} + queries +
                   2 * int64_t{form_.feed_forward};
  if (form_.experts.experts > 0) {
    floats += EncoderExperts::FloatsOf(form_.experts, form_.hidden, form_.feed_forward);
  }
  if (form_.clipped) floats += std::max({form_.hidden, static_cast<int32_t>(queries), form_.feed_forward});
  if (form_.rope_apart) floats += queries;
  const int64_t places = std::max(form_.experts.chosen, 1);
  const int64_t widest =
      std::max({places * int64_t{form_.hidden}, queries, places * int64_t{form_.feed_forward}});
  return rows *
         (floats * static_cast<int64_t>(sizeof(float)) + kernels::QuantizedActivations::BytesOf(widest));
}

int64_t Encoder::pass_bytes(int64_t rows) const {
  const int64_t queries = int64_t{form_.heads} * form_.head_dim,
                keys = int64_t{form_.kv_heads} * form_.head_dim;
  int64_t floats = form_.hidden + queries + 2 * keys;
  for (const RopeSpec& rope : form_.ropes) floats += 2 * static_cast<int64_t>(rope.frequencies.size());
  const auto place = static_cast<int64_t>(sizeof(TokenId) + sizeof(int32_t)) +
                     form_.rope_axes * static_cast<int64_t>(sizeof(int64_t));
  return rows * (floats * static_cast<int64_t>(sizeof(float)) + place);
}

}  // namespace quire::runner::models
