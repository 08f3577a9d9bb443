#include <cmath>
#include <utility>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

struct GemmaConfig {
  DecoderConfig decoder;
  int32_t feed_forward = 0;
  RopeSpec sliding_rope = {}, full_rope = {};
  std::vector<int32_t> windows = {};   // [layers], 0 = full attention
  float scale = 0;                     // of query and key products
  float score_cap = 0, logit_cap = 0;  // 0 = none
  bool head_norms = false;
};

// h += post_norm(attention(norm(h))); h += post_norm(geglu(norm(h))).
struct Block {
  RmsNorm attention_norm;
  Attention attention;
  RmsNorm post_attention_norm;
  RmsNorm mlp_norm;
  GatedMlp mlp;
  RmsNorm post_mlp_norm;
};

class Gemma final : public Decoder {
 public:
  Gemma(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const GemmaConfig& config)
      : Decoder(std::move(files), config.decoder, NormForm::kZeroCentered),
        sliding_rotary_(config.sliding_rope),
        full_rotary_(config.full_rope) {
    embedding_scale_ = static_cast<float>(std::sqrt(static_cast<double>(config.decoder.hidden)));
    logit_cap_ = config.logit_cap;
    BindEmbedding(bind);
    for (size_t i = 0; i < config.windows.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), config, i);
    BindHead(bind);
  }

 private:
  void BindBlock(const TensorScope& scope, const GemmaConfig& config, size_t layer) {
    const DecoderConfig& decoder = config.decoder;
    const int32_t window = config.windows[layer], hidden = decoder.hidden;
    Block block;
    block.attention_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, hidden);
    block.attention = BindAttention(scope,
                                    {.heads = decoder.heads,
                                     .kv_heads = decoder.kv_heads,
                                     .head_dim = decoder.head_dim,
                                     .window = window,
                                     .head_norms = config.head_norms},
                                    window > 0 ? &sliding_rotary_ : &full_rotary_);
    block.attention.scale = config.scale;
    block.attention.soft_cap = config.score_cap;
    block.post_attention_norm = BindNorm(scope, {"post_attention_layernorm", "post_attention_norm"}, hidden);
    block.mlp_norm = BindNorm(scope, {"pre_feedforward_layernorm", "ffn_norm"}, hidden);
    block.mlp = BindMlp(scope, config.feed_forward);
    block.mlp.activation = Activation::kGelu;
    block.post_mlp_norm = BindNorm(scope, {"post_feedforward_layernorm", "post_ffw_norm"}, hidden);
    blocks_.push_back(std::move(block));
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override {
    sliding_rotary_.Prepare(ctx);
    full_rotary_.Prepare(ctx);
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Block& block = blocks_[layer];
    const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
    const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
    block.attention_norm.Run(ctx.pool, h, normed);
    block.attention.Run(ctx, normed, mixed);
    block.post_attention_norm.Run(ctx.pool, mixed, mixed);
    kernels::Add(ctx.pool, mixed, h);
    block.mlp_norm.Run(ctx.pool, h, normed);
    block.mlp.Run(ctx, normed, mixed);
    block.post_mlp_norm.Run(ctx.pool, mixed, mixed);
    kernels::Add(ctx.pool, mixed, h);
  }

  RotaryEmbedding sliding_rotary_, full_rotary_;
  std::vector<Block> blocks_;
};

// GGUF does not say it: the head's, but in the largest of each generation the share of the hidden size.
float ReadScale(ConfigReader& read, const DecoderConfig& decoder, int32_t layers_of_largest) {
  double size = read.Positive({"query_pre_attn_scalar", ""}, kMaxWidth, read.gguf() ? decoder.head_dim : 256);
  if (read.gguf() && decoder.layers == layers_of_largest) {
    size = static_cast<double>(decoder.hidden) / decoder.heads;
  }
  return static_cast<float>(1 / std::sqrt(size));
}

void CheckAttention(ConfigReader& read) {
  if (read.Boolean({"use_bidirectional_attention", ""}, false)) {
    read.Fail("use_bidirectional_attention: bidirectional attention is not supported");
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGemma2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  GemmaConfig config{
      .decoder = ReadDecoderConfig(read, {.context = 8192, .norm_eps = 1e-6F}, TiedByDefault::kYes),
      .feed_forward = ReadFeedForward(read)};
  config.full_rope = ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 10000});
  config.sliding_rope = config.full_rope;
  config.windows = ReadWindows(
      read, config.decoder.layers, [](int32_t layer, int32_t) { return layer % 2 == 0; }, 2, 4096);
  config.scale = ReadScale(read, config.decoder, 46);
  const auto cap = [&](ConfigKey key, double given) {
    return static_cast<float>(read.Positive(key, 1e6, given));
  };
  config.score_cap = cap({"attn_logit_softcapping", "attn_logit_softcapping"}, 50);
  config.logit_cap = cap({"final_logit_softcapping", "final_logit_softcapping"}, 30);
  CheckAttention(read);
  return BuildModel<Gemma>(read, std::move(files), config);
}

api::Result<std::unique_ptr<Model>> LoadGemma3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // Defaults that the published multimodal configurations omit.
  DecoderConfig given{.context = 131072, .norm_eps = 1e-6F};
  if (!read.gguf()) {
    given.vocab = 262208;
    given.heads = 8;
    given.kv_heads = 4;
    given.head_dim = 256;
  }
  GemmaConfig config{.decoder = ReadDecoderConfig(read, given, TiedByDefault::kYes),
                     .feed_forward = ReadFeedForward(read)};
  const int32_t head_dim = config.decoder.head_dim;
  config.sliding_rope = ReadRope(read, {.head_dim = head_dim,
                                        .layer_type = "sliding_attention",
                                        .theta = {"rope_local_base_freq", "rope.freq_base_swa"},
                                        .default_theta = 10000,
                                        .scaled = false});
  config.full_rope =
      ReadRope(read, {.head_dim = head_dim, .layer_type = "full_attention", .default_theta = 1e6});
  const int32_t period = read.Small({"sliding_window_pattern|_sliding_window_pattern", ""}, 1, kMaxLayers, 6);
  config.windows = ReadWindows(
      read, config.decoder.layers, [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; },
      period, 4096);
  config.scale = ReadScale(read, config.decoder, 62);
  config.head_norms = true;
  CheckAttention(read);
  return BuildModel<Gemma>(read, std::move(files), config);
}

}  // namespace quire::runner::models
