#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/latent_attention.h"
#include "runner/models/mixture_config.h"
#include "runner/models/residual.h"
#include "runner/models/rope.h"

namespace quire::runner::models {
namespace {

struct LongcatConfig {
  DecoderConfig decoder = {};
  LatentAttentionShape latent = {};
  float latent_scale = 1;  // of normed latents
  RopeSpec rope = {};
  int32_t feed_forward = 0;
  MixtureConfig mixture = {};
};

// One of the two halves of a layer.
struct LongcatHalf {
  RmsNorm attention_norm, mlp_norm;
  LatentAttention attention;
  GatedMlp mlp;
};

//   h += attention_0(norm(h)); x = norm(h); h += mlp_0(x)
//   h += attention_1(norm(h)); h += mlp_1(norm(h)) + experts(x)
struct LongcatBlock {
  std::array<LongcatHalf, 2> halves;
  MixtureOfExperts experts;
};

struct LongcatNames {
  TensorName attention_norm, mlp_norm;
  LatentNames latent;
  MlpNames mlp;
};

constexpr LongcatNames kLongcatNames[2] = {
    {.attention_norm = {"input_layernorm.0", ""},
     .mlp_norm = {"post_attention_layernorm.0", ""},
     .latent = {.query_down = {"self_attn.0.q_a_proj", ""},
                .query_norm = {"self_attn.0.q_a_layernorm", ""},
                .query_up = {"self_attn.0.q_b_proj", ""},
                .kv_down = {"self_attn.0.kv_a_proj_with_mqa", ""},
                .kv_norm = {"self_attn.0.kv_a_layernorm", ""},
                .kv_up = {"self_attn.0.kv_b_proj", ""},
                .out = {"self_attn.0.o_proj", ""}},
     .mlp = {.gate = {"mlps.0.gate_proj", ""},
             .up = {"mlps.0.up_proj", ""},
             .down = {"mlps.0.down_proj", ""}}},
    {.attention_norm = {"input_layernorm.1", ""},
     .mlp_norm = {"post_attention_layernorm.1", ""},
     .latent = {.query_down = {"self_attn.1.q_a_proj", ""},
                .query_norm = {"self_attn.1.q_a_layernorm", ""},
                .query_up = {"self_attn.1.q_b_proj", ""},
                .kv_down = {"self_attn.1.kv_a_proj_with_mqa", ""},
                .kv_norm = {"self_attn.1.kv_a_layernorm", ""},
                .kv_up = {"self_attn.1.kv_b_proj", ""},
                .out = {"self_attn.1.o_proj", ""}},
     .mlp = {
         .gate = {"mlps.1.gate_proj", ""}, .up = {"mlps.1.up_proj", ""}, .down = {"mlps.1.down_proj", ""}}}};

class LongcatFlash final : public Decoder {
 public:
  LongcatFlash(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
               const LongcatConfig& config)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(config.rope) {
    BindEmbedding(bind);
    for (int32_t i = 0; i < config.decoder.layers && !bind.error(); ++i) {
      BindBlock(bind.Layer(static_cast<size_t>(i)));
    }
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  size_t layers() const override { return blocks_.size(); }

  void BindBlock(const TensorScope& scope) {
    const int32_t hidden = config_.decoder.hidden;
    LongcatBlock& block = blocks_.emplace_back();
    for (size_t i = 0; i < block.halves.size(); ++i) {
      const LongcatNames& names = kLongcatNames[i];
      LongcatHalf& half = block.halves[i];
      half.attention_norm = BindNorm(scope, names.attention_norm, hidden);
      half.mlp_norm = BindNorm(scope, names.mlp_norm, hidden);
      half.attention = BindLatentAttention(scope, hidden, config_.latent, names.latent);
      for (float& weight : half.attention.kv_norm.weight) weight *= config_.latent_scale;
      half.attention.rotary = &rotary_;
      half.attention.binding = AddAttention(config_.latent.Group(), &rotary_);
      half.mlp = BindMlp(scope, config_.feed_forward, names.mlp);
    }
    MixtureNames names;
    names.router = {"mlp.router.classifier", ""};
    names.choice_bias = {"mlp.router.e_score_correction_bias", ""};
    block.experts = BindMixture(scope, hidden, config_.mixture, names);
    RowWidths::Grow(scope.widths().per_layer, hidden);
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const LongcatBlock& block = blocks_[layer];
    const std::span<float> shortcut = ctx.work.per_layer.Get(static_cast<int64_t>(h.size()));
    for (size_t i = 0; i < block.halves.size(); ++i) {
      const LongcatHalf& half = block.halves[i];
      AddPreNormResidual(ctx, half.attention_norm, h, [&](auto x, auto y) { half.attention.Run(ctx, x, y); });
      AddPreNormResidual(ctx, half.mlp_norm, h, [&](auto x, auto y) {
        if (i == 0) block.experts.Run(ctx, x, shortcut);
        half.mlp.Run(ctx, x, y);
      });
    }
    kernels::Add(ctx.pool, shortcut, h);
  }

  const LongcatConfig config_;
  RotaryEmbedding rotary_;
  std::vector<LongcatBlock> blocks_;
};

MixtureConfig ReadLongcatMixture(ConfigReader& read, int32_t layers) {
  MixtureConfig mixture;
  mixture.experts = read.Small({"n_routed_experts", ""}, 1, kMaxExperts);
  mixture.identity = read.Small({"zero_expert_num", ""}, 0, kMaxExperts, 0);
  mixture.chosen = read.Small({"moe_topk", ""}, 1, mixture.experts + mixture.identity);
  mixture.width = read.Small({"expert_ffn_hidden_size", ""}, 1, kMaxWidth);
  mixture.scale = static_cast<float>(read.Positive({"routed_scaling_factor", ""}, 1e6, 1));
  mixture.normalize = false;
  mixture.choice_bias = true;
  mixture.sparse.assign(static_cast<size_t>(layers), true);
  read.Require("zero_expert_type", "identity");
  for (const char* key : {"norm_topk_prob", "router_bias"}) read.Require(key, false);
  return mixture;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadLongcatFlash(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t layers = read.Small({"num_layers|num_hidden_layers", ""}, 1, kMaxLayers);
  LongcatConfig config{.decoder = ReadDecoderConfig(
                           read, {.layers = layers, .kv_heads = -1, .head_dim = -1, .norm_eps = 1e-5F})};
  config.decoder.layers = layers;
  if (config.decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  config.latent = ReadLatentAttention(read, config.decoder.heads);
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads"});  // follow from other keys
  read.Require("attention_method", "MLA");
  const double hidden = config.decoder.hidden;
  if (config.latent.query_rank == 0) read.Fail("q_lora_rank is missing");
  if (read.Boolean({"mla_scale_q_lora", ""}, true)) {
    config.latent.scale *= static_cast<float>(std::sqrt(hidden / std::max(config.latent.query_rank, 1)));
  }
  if (read.Boolean({"mla_scale_kv_lora", ""}, true)) {
    config.latent_scale = static_cast<float>(std::sqrt(hidden / config.latent.latent));
  }
  config.rope = ReadRope(
      read, {.head_dim = config.latent.rotary, .default_theta = 1e7, .pairs = kernels::RopePairs::kAdjacent});
  config.feed_forward = read.Small({"ffn_hidden_size|intermediate_size", ""}, 1, kMaxWidth);
  config.mixture = ReadLongcatMixture(read, layers);
  return BuildModel<LongcatFlash>(read, std::move(files), config);
}

}  // namespace quire::runner::models
