#include "runner/models/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

void Report(ActivationHook* hook, const char* name, std::span<const float> values, int64_t rows) {
  if (hook != nullptr) hook->Activation(name, values, rows);
}

void Report(ActivationHook* hook, size_t layer, std::span<const float> values, int64_t rows) {
  if (hook != nullptr) hook->Activation(fmt::format("hidden.layer{}", layer), values, rows);
}

cache::ElementType ElementOf(api::KvType type) {
  switch (type) {
    case api::KvType::kF32:
      return cache::ElementType::kF32;
    case api::KvType::kF16:
      return cache::ElementType::kF16;
    case api::KvType::kBF16:
      return cache::ElementType::kBF16;
    case api::KvType::kQ8_0:
      return cache::ElementType::kQ8_0;
    case api::KvType::kI16:
      return cache::ElementType::kI16;
  }
  return cache::ElementType::kF32;
}

// Which of the two shapes it has is what is stored.
OutputGate BindOutputGate(const TensorScope& scope, TensorName name, OutputGate::Kind kind, int64_t heads,
                          int64_t results, int64_t hidden) {
  const std::string published = fmt::format("{}.weight", name.hugging_face),
                    gguf = fmt::format("{}.weight", name.gguf);
  const std::vector<int64_t> shape = scope.ShapeOf({published, gguf});
  const int64_t rows = !shape.empty() && shape[0] == heads ? heads : results;
  return {.kind = kind, .linear = scope.BindLinear(name, rows, hidden)};
}

// [heads, head_dim], in one tensor or in one of each head (StableLM).
std::vector<float> HeadNormWeights(const TensorScope& scope, TensorName name, int32_t heads,
                                   int32_t head_dim) {
  const auto named = [](std::string_view text, std::string_view end) {
    return fmt::format("{}{}", text, end);
  };
  const std::string published = named(name.hugging_face, ".weight"), gguf = named(name.gguf, ".weight");
  if (scope.gguf() || scope.Has({published, gguf})) return scope.Table({published, gguf}, heads, head_dim);
  std::vector<float> weights;
  for (int32_t head = 0; head < heads; ++head) {
    const std::string one = fmt::format("{}.norms.{}", name.hugging_face, head);
    const std::vector<float> values = scope.Norm({one, ""}, head_dim);
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const weights::ModelFiles> files, const DecoderConfig& config)
    : files_(std::move(files)), architecture_(files_->architecture()), config_(config) {}

void Decoder::BindEmbedding(TensorBinder& bind, TensorName name) {
  embedding_ = bind.Global().Matrix(name, config_.vocab, config_.hidden);
}

void Decoder::BindPositions(TensorBinder& bind, TensorName name) {
  positions_ = bind.Global().Matrix(name, config_.context, config_.hidden);
  keys_rotate_ = false;  // they hold what their tokens' positions added
}

void Decoder::BindEmbeddingNorm(TensorBinder& bind, TensorName name, std::optional<NormKind> kind) {
  embedding_norm_ = BindLayerNorm(bind.Global(), name, kind);
}

void Decoder::BindHead(TensorBinder& bind, TensorName final_norm, TensorName head,
                       std::optional<NormKind> norm_kind) {
  const bool named = !final_norm.hugging_face.empty() || !final_norm.gguf.empty();
  if (named) final_norm_ = BindLayerNorm(bind.Global(), final_norm, norm_kind);
  head_.weight =
      bind.InPanels(config_.tied ? embedding_ : bind.Outside().Matrix(head, config_.vocab, config_.hidden));
  if (config_.head_bias != Bias::kAbsent) {
    head_.bias = bind.Outside().BiasOf(head, config_.vocab, config_.head_bias);
  }
  parameters_ = bind.parameters();
  weight_bytes_ = bind.bytes();
  resident_bytes_ = bind.resident_bytes();
  streamed_bytes_ = bind.streamed_bytes();
  RowWidths::Grow(bind.widths().hidden, int64_t{config_.hidden} * streams_);
  if (kernels::HasPanels(head_.weight.type)) RowWidths::Grow(bind.widths().quantized, config_.hidden);
  widths_ = bind.widths();
}

void Decoder::ShareEmbeddingAndHead(const Decoder& target, const TensorScope& scope, TensorName final_norm,
                                    TensorBinder& bind) {
  embedding_ = target.embedding_;
  head_ = target.head_;
  final_norm_ = BindLayerNorm(scope, final_norm);
  parameters_ = bind.parameters();
  weight_bytes_ = bind.bytes();
}

RmsNorm Decoder::BindNorm(const TensorScope& scope, TensorName name, int32_t size,
                          std::optional<NormKind> kind) const {
  // Some GGUF files have norms without ".weight".
  const bool bare = scope.gguf() && !scope.HasWeight(name) && scope.Has(name);
  RmsNorm norm{.weight = bare ? scope.Values(name, size) : scope.Norm(name, size), .eps = config_.norm_eps};
  const NormKind of = kind.value_or(config_.norm);
  const bool centered = of == NormKind::kZeroCenteredRms || of == NormKind::kZeroCenteredLayer;
  if (centered && !scope.gguf()) {
    for (float& weight : norm.weight) weight += 1;
  }
  return norm;
}

Norm Decoder::BindLayerNorm(const TensorScope& scope, TensorName name, std::optional<NormKind> kind) const {
  const NormKind of = kind.value_or(config_.norm);
  if (of == NormKind::kPlainLayer || of == NormKind::kPlainRms) {
    return {.kind = of == NormKind::kPlainRms ? NormKind::kRms : NormKind::kLayer,
            .weight = std::vector<float>(static_cast<size_t>(config_.hidden), 1.0F),
            .bias = {},
            .eps = config_.norm_eps};
  }
  RmsNorm plain = BindNorm(scope, name, config_.hidden, of);
  Norm norm{.kind = of, .weight = std::move(plain.weight), .bias = {}, .eps = plain.eps};
  if (norm.kind == NormKind::kZeroCenteredLayer) norm.kind = NormKind::kLayer;
  if (norm.kind == NormKind::kLayer) norm.bias = scope.BiasOf(name, config_.hidden, Bias::kIfStored);
  return norm;
}

Attention Decoder::BindAttention(const TensorScope& scope, const AttentionShape& shape,
                                 const RotaryEmbedding* rotary, const AttentionNames& names) {
  const int64_t hidden = config_.hidden, queries = int64_t{shape.heads} * shape.head_dim;
  const int64_t keys = int64_t{shape.kv_heads} * shape.head_dim;
  const int32_t value_dim = shape.value_dim > 0 ? shape.value_dim : shape.head_dim;
  const int32_t cached = std::max(shape.head_dim, value_dim);
  const int64_t values = int64_t{shape.kv_heads} * value_dim, results = int64_t{shape.heads} * value_dim;
  Attention attention;
  const int64_t from_q = shape.gated ? 2 * queries : queries;
  if (scope.HasWeight(names.qkv)) {
    const int64_t sizes[] = {from_q, keys, values};
    const int64_t groups = names.grouped && !scope.gguf() ? shape.kv_heads : 1;
    std::vector<Linear> parts = scope.BindRows(names.qkv, sizes, hidden, shape.bias, groups);
    attention.q = std::move(parts[0]);
    attention.k = std::move(parts[1]);
    attention.v = std::move(parts[2]);
  } else {
    attention.q = scope.BindLinear(names.q, from_q, hidden, shape.bias);
    attention.k = scope.BindLinear(names.k, keys, hidden, shape.bias);
    attention.v = scope.BindLinear(names.v, values, hidden, shape.bias);
  }
  attention.out = scope.BindLinear(names.out, hidden, results, shape.out_bias);
  if (shape.gate != OutputGate::Kind::kNone) {
    attention.gate = BindOutputGate(scope, names.gate, shape.gate, shape.heads, results, hidden);
  }
  if (shape.sinks) attention.sinks = scope.Values(names.sinks, shape.heads);
  if (shape.qk_norm == QkNorm::kUnitHeads || shape.qk_norm == QkNorm::kLayerHeads) {
    attention.q_norm = {.weight = std::vector<float>(static_cast<size_t>(shape.head_dim), 1.0F),
                        .eps = shape.qk_eps > 0 ? shape.qk_eps : config_.norm_eps};
    attention.k_norm = attention.q_norm;
    attention.layer_norms = shape.qk_norm == QkNorm::kLayerHeads;
    if (attention.layer_norms) {
      attention.q_weights = HeadNormWeights(scope, names.q_norm, shape.heads, shape.head_dim);
      attention.k_weights = HeadNormWeights(scope, names.k_norm, shape.kv_heads, shape.head_dim);
    }
  } else if (shape.qk_norm != QkNorm::kNone) {
    const bool heads = shape.qk_norm != QkNorm::kRow;
    attention.q_norm = BindNorm(scope, names.q_norm, shape.head_dim * (heads ? 1 : shape.heads));
    attention.k_norm = BindNorm(scope, names.k_norm, shape.head_dim * (heads ? 1 : shape.kv_heads));
  }
  if (!names.out_norm.hugging_face.empty()) {
    attention.out_norm = BindNorm(scope, names.out_norm, shape.heads * shape.head_dim);
  }
  attention.norm_rotated = shape.qk_norm == QkNorm::kRotatedHeads;
  // A norm's weights between two rotations are in the way.
  keys_rotate_ = keys_rotate_ && !attention.norm_rotated;
  attention.rotary = rotary;
  scope.widths().GrowAttention(int64_t{shape.heads} * cached, int64_t{shape.kv_heads} * cached, cached,
                               shape.gated);
  RowWidths::Grow(scope.widths().attention_gate, attention.gate.linear.weight.out);
  attention.heads = shape.heads;
  attention.head_dim = shape.head_dim;
  attention.value_dim = shape.value_dim;
  attention.gated = shape.gated;
  attention.binding = AddAttention(
      {.kv_heads = shape.kv_heads, .head_dim = cached, .window = shape.window, .chunked = shape.chunked},
      rotary, shape.decoder_layer, shape.heads);
  cache_bindings_.back().key_dim = attention.binding.key_dim = cached == shape.head_dim ? 0 : shape.head_dim;
  cache_bindings_.back().value_dim = attention.binding.value_dim = cached == value_dim ? 0 : value_dim;
  return attention;
}

GatedMlp Decoder::BindMlp(const TensorScope& scope, int32_t width, const MlpNames& names, Bias bias) const {
  RowWidths::Grow(scope.widths().ff, width);
  GatedMlp mlp{.gate = {}, .up = {}, .down = {}, .activation = config_.activation, .clamp = config_.clamp};
  if (scope.HasWeight(names.gate_up)) {
    const int64_t sizes[] = {width, width};
    std::vector<Linear> parts = scope.BindRows(names.gate_up, sizes, config_.hidden, bias);
    mlp.gate = std::move(parts[0]);
    mlp.up = std::move(parts[1]);
  } else {
    mlp.gate = scope.BindLinear(names.gate, width, config_.hidden, bias);
    mlp.up = scope.BindLinear(names.up, width, config_.hidden, bias);
  }
  mlp.down = scope.BindLinear(names.down, config_.hidden, width, bias);
  if (!names.norm.hugging_face.empty()) mlp.norm = BindNorm(scope, names.norm, width);
  return mlp;
}

PlainMlp Decoder::BindPlainMlp(const TensorScope& scope, int32_t width, TensorName up, TensorName down,
                               Bias bias) const {
  RowWidths::Grow(scope.widths().ff, width);
  return {.up = scope.BindLinear(up, width, config_.hidden, bias),
          .down = scope.BindLinear(down, config_.hidden, width, bias),
          .activation = config_.plain_activation.value_or(PlainActivation::kGelu)};
}

CacheBinding Decoder::GroupLayer(const cache::AttentionGroup& geometry, const RotaryEmbedding* rotary,
                                 int32_t heads) {
  const auto same = [&](size_t index) {
    const cache::AttentionGroup& group = layout_.groups[index];
    return group.kv_heads == geometry.kv_heads && group.head_dim == geometry.head_dim &&
           group.window == geometry.window && group.chunked == geometry.chunked &&
           group.latent == geometry.latent && group.stride == geometry.stride && group_heads_[index] == heads;
  };
  size_t index = 0;
  while (index < layout_.groups.size() && !same(index)) ++index;
  if (index == layout_.groups.size()) {
    layout_.groups.push_back(geometry);
    layout_.groups.back().layers = 0;
    group_heads_.push_back(heads);
    rotaries_.emplace_back();
  }
  rotaries_[index].push_back(rotary);
  return {.recurrent = false, .index = index, .layer = layout_.groups[index].layers++};
}

CacheBinding Decoder::AddAttention(const cache::AttentionGroup& geometry, const RotaryEmbedding* rotary,
                                   int32_t decoder_layer, int32_t heads) {
  CacheBinding binding = GroupLayer(geometry, rotary, heads == 0 ? config_.heads : heads);
  binding.decoder_layer = DecoderLayer(decoder_layer);
  cache_bindings_.push_back(binding);
  return binding;
}

CacheBinding Decoder::AddRows(cache::AttentionGroup geometry, const RotaryEmbedding* rotary) {
  geometry.kv_heads = 1;
  geometry.latent = geometry.head_dim;
  return GroupLayer(geometry, rotary, kNoHeads);
}

CacheBinding Decoder::AddRecurrent(const cache::RecurrentLayer& state, int32_t tiled_over) {
  cache_bindings_.push_back({.recurrent = true,
                             .index = layout_.recurrent.size(),
                             .layer = 0,
                             .decoder_layer = DecoderLayer(-1),
                             .tiled_over = tiled_over});
  layout_.recurrent.push_back(state);
  return cache_bindings_.back();
}

size_t Decoder::AddState(const cache::RecurrentLayer& state) {
  layout_.recurrent.push_back(state);
  return layout_.recurrent.size() - 1;
}

size_t Decoder::AddStateSpace(const cache::RecurrentLayer& state, int32_t decoder_layer) {
  const size_t index = layout_.recurrent.size();
  cache_bindings_.push_back(
      {.recurrent = true, .index = index, .decoder_layer = decoder_layer, .state_space = true});
  layout_.recurrent.push_back(state);
  return index;
}

api::Result<void> Decoder::SetKvCacheType(api::KvType type) {
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    if (group_heads_[g] == kNoHeads) continue;
    cache::AttentionGroup& group = layout_.groups[g];
    const bool whole_blocks =
        group.head_dim % kernels::kQ8Block == 0 && group.latent % kernels::kQ8Block == 0;
    if (type == api::KvType::kQ8_0 && !whole_blocks) {
      return api::Fail(
          api::ErrorCode::kInvalidArgument,
          fmt::format("{}: keys and values cannot be stored as q8_0: heads of {} elements are not "
                      "whole blocks of {}; f16, bf16 and f32 are possible",
                      files_->path(), group.head_dim, kernels::kQ8Block),
          "kv_cache_type");
    }
    const bool integers = group.latent == 0 && group.head_dim % 2 == 0;
    group.element = type == api::KvType::kI16 && !integers ? cache::ElementType::kF16 : ElementOf(type);
  }
  return {};
}

cache::RotateKeys Decoder::key_rotation() const {
  if (!layout_.recurrent.empty() || !keys_rotate_) return {};
  return [this](const cache::MovedKeys& moved) {
    const cache::AttentionGroup& group = layout_.groups[moved.group];
    const RotaryEmbedding* const rotary = rotaries_[moved.group][static_cast<size_t>(moved.layer)];
    if (rotary == nullptr) return;  // keys without positions
    std::vector<float> keys(static_cast<size_t>(moved.tokens) * static_cast<size_t>(group.head_dim));
    kernels::ReadKeys(layout_, moved.group, moved.head, moved.row, moved.tokens, keys);
    rotary->Shift(moved.new_first - moved.old_first, group.head_dim, keys);
    kernels::WriteKeys(layout_, moved.group, keys, moved.head, moved.row, moved.tokens);
  };
}

void Decoder::Embed(std::span<const TokenId> tokens, ThreadPool& pool, std::span<float> to) const {
  kernels::EmbeddingRows(embedding_, tokens, to);
  if (embedding_scale_ != 1) kernels::Scale(pool, embedding_scale_, to);
}

void Decoder::EmbedRows(const Batch& batch, ThreadPool& pool, std::span<float> h) const {
  const std::span<const TokenId> tokens = batch.tokens;
  const auto width = static_cast<size_t>(config_.hidden);
  const auto embed = [&](size_t begin, size_t end) {
    Embed(tokens.subspan(begin, end - begin), pool, h.subspan(begin * width, (end - begin) * width));
  };
  size_t row = 0;
  for (const EmbeddedRows& image : batch.embedded) {
    embed(row, static_cast<size_t>(image.begin));
    std::ranges::copy(image.embeddings, h.subspan(static_cast<size_t>(image.begin) * width).begin());
    row = static_cast<size_t>(image.end);
  }
  embed(row, tokens.size());
  const auto streams = static_cast<size_t>(streams_);
  if (streams == 1) return;
  // From the last row on: what is copied lies before what it is copied to.
  for (size_t r = tokens.size(); r-- > 0;) {
    for (size_t s = streams; s-- > (r == 0 ? 1U : 0U);) {
      std::copy_n(h.data() + r * width, width, h.data() + (r * streams + s) * width);
    }
  }
}

void Decoder::AddPositions(ForwardContext& ctx, std::span<float> h) {
  position_rows_.clear();
  for (const int64_t position : ctx.work.positions) {
    // Drafts may lie behind the context's end. What follows from them is never sampled.
    position_rows_.push_back(static_cast<TokenId>(std::min<int64_t>(position, positions_.out - 1)));
  }
  const std::span<float> rows = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
  kernels::EmbeddingRows(positions_, position_rows_, rows);
  kernels::Add(ctx.pool, rows, h);
}

void Decoder::AddBehind(const Batch& batch, size_t layer, ThreadPool& pool, std::span<float> h) const {
  const auto width = static_cast<size_t>(config_.hidden);
  for (const EmbeddedRows& image : batch.embedded) {
    if (layer >= image.behind_layers.size()) continue;
    const std::span<const float> added = image.behind_layers[layer];
    kernels::Add(pool, added, h.subspan(static_cast<size_t>(image.begin) * width, added.size()));
  }
}

void Decoder::Forward(const Batch& batch, const cache::StepView& step, ThreadPool& pool,
                      const Outputs& outputs, ActivationHook* hook) {
  ForwardContext ctx{.batch = batch, .step = step, .layout = layout_, .pool = pool, .work = work_};
  const int64_t rows = ctx.rows();
  ctx.Prepare(config_.heads, group_heads_);
  const std::span<float> h = work_.hidden.Get(rows * config_.hidden * streams_);
  EmbedRows(batch, pool, h);
  if (positions_.data != nullptr) AddPositions(ctx, h);
  if (embedding_norm_) embedding_norm_.Run(pool, h, h);
  Report(hook, "hidden.embed", h, rows);
  PrepareForward(ctx, h);
  for (size_t layer = 0; layer < layers(); ++layer) {
    RunLayer(ctx, layer, h);
    Report(hook, layer, h, rows);
    AddBehind(batch, layer, pool, h);
  }
  if (hook != nullptr) {
    const std::span<float> normed = work_.outputs.Get(rows * config_.hidden);
    std::vector<int32_t> all(static_cast<size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    Report(hook, "hidden.final_norm", Final(ctx, all, h, normed), rows);
  }
  Final(ctx, batch.hidden_rows, h, outputs.hidden);
  const auto logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  const std::span<float> last = work_.outputs.Get(logit_rows * config_.hidden);
  head_.Run(pool, {Final(ctx, batch.logit_rows, h, last), logit_rows, work_.quantized}, outputs.logits);
  if (logit_scale_ != 1) kernels::Scale(pool, logit_scale_, outputs.logits);
  if (logit_cap_ > 0) kernels::SoftCap(pool, logit_cap_, outputs.logits);
}

std::span<float> Decoder::Final(ForwardContext& ctx, std::span<const int32_t> rows, std::span<const float> h,
                                std::span<float> to) {
  const auto width = static_cast<size_t>(config_.hidden) * static_cast<size_t>(streams_);
  if (rows.empty()) return to;
  const auto size = static_cast<int64_t>(rows.size() * width);
  const std::span<float> gathered = streams_ == 1 ? to : work_.mixed.Get(size);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(h.subspan(static_cast<size_t>(rows[i]) * width, width),
                      gathered.subspan(i * width).begin());
  }
  if (streams_ > 1) JoinStreams(ctx, gathered, to);
  if (final_norm_) final_norm_.Run(ctx.pool, to, to);
  return to;
}

void Decoder::Replay(size_t recurrent_layer, std::byte* slot, std::span<const std::byte> inputs,
                     int32_t tokens, ThreadPool& pool) {
  const auto found = std::ranges::find_if(cache_bindings_, [&](const CacheBinding& binding) {
    return binding.recurrent && binding.index == recurrent_layer;
  });
  if (found == cache_bindings_.end()) return;
  ReplayLayer(static_cast<size_t>(found->decoder_layer), slot, inputs, tokens, pool);
}

// For families without recurrent layers.
void Decoder::ReplayLayer(size_t, std::byte*, std::span<const std::byte>, int32_t, ThreadPool&) {}

}  // namespace quire::runner::models
