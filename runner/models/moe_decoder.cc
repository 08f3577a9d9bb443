#include "runner/models/moe_decoder.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "runner/models/residual.h"

namespace quire::runner::models {
namespace {

struct Block {
  RmsNorm attention_norm;
  std::variant<Attention, LatentAttention> attention;
  RmsNorm mlp_norm;
  std::variant<GatedMlp, MixtureOfExperts> feed_forward;
};

class MoeDecoder final : public Decoder {
 public:
  MoeDecoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
             const MoeDecoderConfig& config)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(config.rope) {
    BindEmbedding(bind);
    for (size_t i = 0; i < config.windows.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), i);
    BindHead(bind);
  }

 private:
  void BindBlock(const TensorScope& scope, size_t layer) {
    const int32_t hidden = config_.decoder.hidden;
    Block block;
    block.attention_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, hidden);
    if (config_.latent) {
      block.attention = BindLatent(scope);
    } else {
      block.attention = BindGroupedQuery(scope, config_.windows[layer]);
    }
    block.mlp_norm = BindNorm(scope, config_.mlp_norm, hidden);
    if (config_.mixture.sparse[layer]) {
      block.feed_forward = BindExpertsOf(scope);
    } else {
      block.feed_forward = BindMlp(scope, config_.feed_forward);
    }
    blocks_.push_back(std::move(block));
  }

  Attention BindGroupedQuery(const TensorScope& scope, int32_t window) {
    const DecoderConfig& decoder = config_.decoder;
    Attention attention = BindAttention(scope,
                                        {.heads = decoder.heads,
                                         .kv_heads = decoder.kv_heads,
                                         .head_dim = decoder.head_dim,
                                         .window = window,
                                         .qk_norm = config_.head_norms ? QkNorm::kHeads : QkNorm::kNone,
                                         .bias = config_.attention_bias,
                                         .out_bias = config_.out_bias},
                                        &rotary_);
    if (config_.sinks)
      attention.sinks = scope.Values({"self_attn.sinks", "attn_sinks.weight"}, decoder.heads);
    return attention;
  }

  LatentAttention BindLatent(const TensorScope& scope) {
    LatentAttention attention = BindLatentAttention(scope, config_.decoder.hidden, *config_.latent);
    attention.rotary = &rotary_;
    attention.binding = AddAttention(config_.latent->Group(), &rotary_);
    return attention;
  }

  MixtureOfExperts BindExpertsOf(const TensorScope& scope) const {
    const MixtureConfig& mixture = config_.mixture;
    const int64_t hidden = config_.decoder.hidden;
    MixtureOfExperts moe = BindRouter(scope, hidden, mixture, config_.names);
    if (config_.bind_experts != nullptr) {
      config_.bind_experts(scope, hidden, mixture, &moe);
    } else {
      BindExperts(scope, config_.names.experts, mixture.experts, hidden, mixture.width, &moe);
    }
    if (mixture.shared_width > 0) {
      RowWidths::Grow(scope.widths().shared, hidden);
      moe.shared = BindMlp(scope, mixture.shared_width, config_.names.shared);
    }
    return moe;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Block& block = blocks_[layer];
    AddPreNormResidual(ctx, block.attention_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& attention) { attention.Run(ctx, x, y); }, block.attention);
    });
    AddPreNormResidual(ctx, block.mlp_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& feed_forward) { feed_forward.Run(ctx, x, y); }, block.feed_forward);
    });
  }

  const MoeDecoderConfig config_;
  RotaryEmbedding rotary_;
  std::vector<Block> blocks_;
};

}  // namespace

MoeDecoderConfig ReadMoeDecoder(ConfigReader& read, const DecoderConfig& given,
                                const MixtureDefaults& defaults) {
  MoeDecoderConfig config;
  config.decoder = ReadDecoderConfig(read, given);
  const int32_t predicting = read.Small({"", "nextn_predict_layers"}, 0, config.decoder.layers - 1, 0);
  config.decoder.layers -= predicting;
  config.windows.assign(static_cast<size_t>(config.decoder.layers), 0);
  config.mixture = ReadMixture(read, config.decoder.layers, defaults);
  // MTP layers are not used; intermediate_size is that of dense layers, which there need not be.
  read.Ignore({"num_nextn_predict_layers", "intermediate_size"});
  if (config.decoder.activation != Activation::kSilu) read.Fail("hidden_act: experts have silu only");
  if (std::ranges::count(config.mixture.sparse, false) != 0) config.feed_forward = ReadFeedForward(read);
  return config;
}

api::Result<std::unique_ptr<Model>> BuildMoeDecoder(ConfigReader& read,
                                                    std::shared_ptr<const weights::ModelFiles> files,
                                                    const MoeDecoderConfig& config) {
  return BuildModel<MoeDecoder>(read, std::move(files), config);
}

}  // namespace quire::runner::models
