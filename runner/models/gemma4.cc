#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/gemma4_block.h"
#include "runner/models/gemma4_config.h"
#include "runner/models/per_layer_inputs.h"

namespace quire::runner::models {
namespace {

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
    inputs.Bind(bind.Global(), config.per_layer_vocab, config.decoder.hidden, config.decoder.norm_eps);
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float> h) override {
    sliding_rotary_.Prepare(ctx);
    full_rotary_.Prepare(ctx);
    const PerLayerInputs& inputs = per_layer_inputs_;
    if (inputs.width == 0) return;
    inputs.Run(ctx, h);
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    blocks_[layer].Run(ctx, h, per_layer_inputs_.Rows(ctx, layer));
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
