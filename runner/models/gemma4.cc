#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/gemma4_block.h"
#include "runner/models/gemma4_config.h"

namespace quire::runner::models {
namespace {

// Per-layer input of each token, beside the residual stream:
//   per_layer = (norm(projection(h) / sqrt(hidden)) + embedding(token) * sqrt(width)) / sqrt(2),  [layers,
//   width].
struct PerLayerInputs {
  kernels::Matrix embedding;  // [vocab, layers * width]
  Linear projection;          // [layers * width, hidden]
  RmsNorm norm;               // [width]
  int64_t layers = 0, width = 0;
  TokenId image_token = 0;  // in place of the rows of images

  // h: the embedded tokens. To [rows, layers, width].
  void Run(ForwardContext& ctx, std::span<const float> h, std::span<float> to) const {
    const std::span<float> context = ctx.work.per_layer_context.Get(static_cast<int64_t>(to.size()));
    projection.Run(ctx.pool, ctx.Input(h), context);
    kernels::Scale(ctx.pool, static_cast<float>(1 / std::sqrt(static_cast<double>(projection.weight.in))),
                   context);
    norm.Run(ctx.pool, context, context);
    EmbedRows(ctx.batch, to);
    kernels::Scale(ctx.pool, static_cast<float>(std::sqrt(static_cast<double>(width))), to);
    kernels::Add(ctx.pool, context, to);
    kernels::Scale(ctx.pool, static_cast<float>(1 / std::sqrt(2.0)), to);
  }

  void EmbedRows(const Batch& batch, std::span<float> to) const {
    const std::span<const TokenId> tokens = batch.tokens;
    const auto size = static_cast<size_t>(layers * width);
    size_t row = 0;
    const auto embed = [&](std::span<const TokenId> some) {
      kernels::EmbeddingRows(embedding, some, to.subspan(row * size, some.size() * size));
      row += some.size();
    };
    for (const EmbeddedRows& image : batch.embedded) {
      embed(tokens.subspan(row, static_cast<size_t>(image.begin) - row));
      while (row < static_cast<size_t>(image.end)) embed({&image_token, 1});
    }
    embed(tokens.subspan(row));
  }
};

class Gemma4 final : public Decoder {
 public:
  Gemma4(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const Gemma4Config& config)
      : Decoder(std::move(files), config.decoder),
        sliding_rotary_(config.sliding_rope),
        full_rotary_(config.full_rope) {
    embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(config.decoder.hidden)));
    logit_cap_ = config.logit_cap;
    image_rules_.both_ways = config.images_both_ways;
    BindEmbedding(bind);
    if (config.per_layer_width > 0) BindPerLayerInputs(bind, config);
    for (size_t i = 0; i < config.windows.size() && !bind.error(); ++i) {
      const RotaryEmbedding* rotary = config.windows[i] > 0 ? &sliding_rotary_ : &full_rotary_;
      blocks_.push_back(BindGemma4Block(bind.Layer(i), config, i, rotary));
      blocks_.back().attention.binding = BindCache(config, i, rotary);
      blocks_.back().attention.causal = config.windows[i] == 0;
    }
    BindHead(bind);
  }

 private:
  // Its own, or that of the last layer of its kind that has one.
  CacheBinding BindCache(const Gemma4Config& config, size_t layer, const RotaryEmbedding* rotary) {
    const auto own = static_cast<size_t>(config.own_layers);
    if (layer < own) {
      return AddAttention({.kv_heads = static_cast<int32_t>(config.kv_heads[layer]),
                           .head_dim = config.head_dim(layer),
                           .window = config.windows[layer]},
                          rotary);
    }
    size_t source = own - 1;
    while (config.windows[source] != config.windows[layer]) --source;
    AddSharing(cache_bindings()[source]);
    return cache_bindings()[source];
  }

  void BindPerLayerInputs(TensorBinder& bind, const Gemma4Config& config) {
    PerLayerInputs& inputs = per_layer_inputs_;
    inputs.layers = config.decoder.layers;
    inputs.width = config.per_layer_width;
    inputs.image_token = config.image_token;
    const int64_t all = inputs.layers * inputs.width;
    const TensorScope scope = bind.Global();
    RowWidths::Grow(scope.widths().per_layer, all);
    inputs.embedding =
        scope.Matrix({"embed_tokens_per_layer", "per_layer_token_embd"}, config.per_layer_vocab, all);
    inputs.projection =
        scope.BindLinear({"per_layer_model_projection", "per_layer_model_proj"}, all, config.decoder.hidden);
    inputs.norm =
        BindNorm(scope, {"per_layer_projection_norm", "per_layer_proj_norm"}, config.per_layer_width);
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float> h) override {
    sliding_rotary_.Prepare(ctx);
    full_rotary_.Prepare(ctx);
    const PerLayerInputs& inputs = per_layer_inputs_;
    if (inputs.width == 0) return;
    inputs.Run(ctx, h, ctx.work.per_layer.Get(ctx.rows() * inputs.layers * inputs.width));
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    blocks_[layer].Run(ctx, h, PerLayerRows(ctx, layer));
  }

  // The rows of per_layer that are of this layer, end to end.
  std::span<const float> PerLayerRows(ForwardContext& ctx, size_t layer) {
    const auto width = static_cast<size_t>(per_layer_inputs_.width), rows = static_cast<size_t>(ctx.rows());
    if (width == 0) return {};
    const size_t stride = width * static_cast<size_t>(per_layer_inputs_.layers);
    const std::span<const float> all = ctx.work.per_layer.Get(static_cast<int64_t>(rows * stride));
    const std::span<float> layer_rows = ctx.work.per_layer_context.Get(static_cast<int64_t>(rows * width));
    for (size_t row = 0; row < rows; ++row) {
      std::ranges::copy(all.subspan(row * stride + layer * width, width),
                        layer_rows.subspan(row * width).begin());
    }
    return layer_rows;
  }

  PerLayerInputs per_layer_inputs_;
  RotaryEmbedding sliding_rotary_, full_rotary_;
  std::vector<Gemma4Block> blocks_;
};

// Layers without keys need one before them that has those of their kind.
void CheckSharing(ConfigReader& read, const Gemma4Config& config) {
  if (read.error()) return;
  const auto own = config.windows.begin() + config.own_layers;
  for (auto layer = own; layer != config.windows.end(); ++layer) {
    if (std::find(config.windows.begin(), own, *layer) == own) {
      return read.Fail(
          "layers share the keys of earlier layers, but no earlier layer of their type has keys");
    }
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGemma4(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const Gemma4Config config = ReadGemma4Config(read);
  CheckSharing(read, config);
  return BuildModel<Gemma4>(read, std::move(files), config);
}

}  // namespace quire::runner::models
