#include "runner/models/llama.h"

#include "runner/models/families.h"
#include "runner/models/residual.h"

namespace quire::runner::models {
namespace {

struct Block {
  RmsNorm attention_norm;
  Attention attention;
  RmsNorm mlp_norm;
  GatedMlp mlp;
};

class Llama final : public Decoder {
 public:
  Llama(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const LlamaConfig& config)
      : Decoder(std::move(files), config.decoder), rotary_(config.rope) {
    BindEmbedding(bind);
    for (size_t i = 0; i < config.windows.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), config, i);
    BindHead(bind);
  }

 private:
  void BindBlock(const TensorScope& scope, const LlamaConfig& config, size_t layer) {
    const DecoderConfig& decoder = config.decoder;
    Block block;
    block.attention_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, decoder.hidden);
    block.attention = BindAttention(scope,
                                    {.heads = decoder.heads,
                                     .kv_heads = decoder.kv_heads,
                                     .head_dim = decoder.head_dim,
                                     .window = config.windows[layer],
                                     .head_norms = config.head_norms,
                                     .bias = config.attention_bias,
                                     .out_bias = config.out_bias},
                                    &rotary_);
    block.mlp_norm = BindNorm(scope, {"post_attention_layernorm", "ffn_norm"}, decoder.hidden);
    block.mlp = BindMlp(scope, config.feed_forward, {}, config.mlp_bias);
    blocks_.push_back(std::move(block));
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Block& block = blocks_[layer];
    AddPreNormResidual(ctx, block.attention_norm, h, [&](auto x, auto y) { block.attention.Run(ctx, x, y); });
    AddPreNormResidual(ctx, block.mlp_norm, h, [&](auto x, auto y) { block.mlp.Run(ctx, x, y); });
  }

  RotaryEmbedding rotary_;
  std::vector<Block> blocks_;
};

}  // namespace

api::Result<std::unique_ptr<Model>> BuildLlama(ConfigReader& read,
                                               std::shared_ptr<const weights::ModelFiles> files,
                                               const LlamaConfig& config) {
  return BuildModel<Llama>(read, std::move(files), config);
}

api::Result<std::unique_ptr<Model>> LoadLlama(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  if (read.Find({"", "expert_count"}) != nullptr) return LoadMixtral(std::move(files));
  LlamaConfig config{.decoder = ReadDecoderConfig(read, {.context = 2048, .norm_eps = 1e-6F}),
                     .feed_forward = ReadFeedForward(read)};
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim,
                                .default_theta = 10000,
                                .gguf_pairs = kernels::RopePairs::kAdjacent});
  config.windows = ReadWindows(read, config.decoder.layers, [](int32_t, int32_t) { return true; });
  const auto bias = [&](const char* key) {
    if (read.gguf()) return Bias::kIfStored;
    return read.Boolean({key, ""}, false) ? Bias::kPresent : Bias::kAbsent;
  };
  config.attention_bias = config.out_bias = bias("attention_bias");
  config.mlp_bias = bias("mlp_bias");
  return BuildLlama(read, std::move(files), config);
}

}  // namespace quire::runner::models
