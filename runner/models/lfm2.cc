#include <utility>
#include <variant>

#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/lfm2_config.h"
#include "runner/models/moe.h"
#include "runner/models/residual.h"
#include "runner/models/short_conv.h"

namespace quire::runner::models {
namespace {

constexpr AttentionNames kAttentionNames = {.q = {"self_attn.q_proj", "attn_q"},
                                            .k = {"self_attn.k_proj", "attn_k"},
                                            .v = {"self_attn.v_proj", "attn_v"},
                                            .out = {"self_attn.out_proj", "attn_output"},
                                            .q_norm = {"self_attn.q_layernorm", "attn_q_norm"},
                                            .k_norm = {"self_attn.k_layernorm", "attn_k_norm"}};
constexpr MlpNames kMlpNames = {.gate = {"feed_forward.w1", "ffn_gate"},
                                .up = {"feed_forward.w3", "ffn_up"},
                                .down = {"feed_forward.w2", "ffn_down"}};
constexpr ExpertNames kExpertNames = {.gate = "feed_forward.experts.{}.w1",
                                      .up = "feed_forward.experts.{}.w3",
                                      .down = "feed_forward.experts.{}.w2",
                                      .gate_up_stacked = {},
                                      .down_stacked = {}};

// h += mixer(operator_norm(h)); h += feed_forward(ffn_norm(h)).
struct Block {
  RmsNorm operator_norm;
  std::variant<Attention, ShortConvolution> mixer;
  RmsNorm ffn_norm;
  std::variant<GatedMlp, MixtureOfExperts> feed_forward;
};

class Lfm2 final : public Decoder {
 public:
  Lfm2(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const Lfm2Config& config)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(config.rope) {
    BindEmbedding(bind);
    // After the first error there is nothing left to find, however many layers the configuration claims.
    for (size_t i = 0; i < config.is_attention.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), i);
    // Published as "embedding_norm", though it comes last.
    BindHead(bind, {"embedding_norm", "token_embd_norm"});
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  void BindBlock(const TensorScope& scope, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    Block block;
    block.operator_norm = BindNorm(scope, {"operator_norm", "attn_norm"}, decoder.hidden);
    if (config_.is_attention[layer]) {
      block.mixer = BindAttention(scope,
                                  {.heads = decoder.heads,
                                   .kv_heads = decoder.kv_heads,
                                   .head_dim = decoder.head_dim,
                                   .window = config_.window,
                                   .qk_norm = QkNorm::kHeads},
                                  &rotary_, kAttentionNames);
    } else {
      block.mixer = BindConvolution(scope);
    }
    block.ffn_norm = BindNorm(scope, {"ffn_norm", "ffn_norm"}, decoder.hidden);
    if (static_cast<int32_t>(layer) < config_.dense_layers) {
      block.feed_forward = BindMlp(scope, config_.feed_forward, kMlpNames);
    } else {
      block.feed_forward = BindMixture(scope);
    }
    blocks_.push_back(std::move(block));
  }

  ShortConvolution BindConvolution(const TensorScope& scope) {
    const int64_t hidden = config_.decoder.hidden;
    ShortConvolution conv;
    conv.in = scope.BindLinear({"conv.in_proj", "shortconv.in_proj"}, 3 * hidden, hidden, config_.conv_bias);
    conv.taps = scope.Taps({"conv.conv", "shortconv.conv"}, hidden, config_.conv_kernel);
    conv.bias = scope.TapsBias({"conv.conv", "shortconv.conv"}, hidden, config_.conv_bias);
    conv.out = scope.BindLinear({"conv.out_proj", "shortconv.out_proj"}, hidden, hidden, config_.conv_bias);
    RowWidths::Grow(scope.widths().projected, 3 * hidden);
    RowWidths::Grow(scope.widths().convolved, hidden);
    conv.channels = hidden;
    conv.kernel = config_.conv_kernel;
    conv.recurrent_layer = AddRecurrent(conv.state()).index;
    return conv;
  }

  MixtureOfExperts BindMixture(const TensorScope& scope) const {
    const int64_t experts = config_.experts, hidden = config_.decoder.hidden;
    MixtureOfExperts moe;
    moe.router = scope.BindLinear({"feed_forward.gate", "ffn_gate_inp"}, experts, hidden);
    moe.score = kernels::RoutingRule::Score::kSigmoid;
    moe.chosen = config_.experts_used;
    if (config_.expert_bias) {
      moe.choice_bias = scope.Values({"feed_forward.expert_bias", "exp_probs_b.bias"}, experts);
    }
    moe.normalize = config_.normalize;
    moe.normalize_eps = 1e-6F;
    moe.scale = config_.expert_scale;
    BindExperts(scope, kExpertNames, experts, hidden, config_.expert_feed_forward, &moe);
    return moe;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Block& block = blocks_[layer];
    AddPreNormResidual(ctx, block.operator_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& mixer) { mixer.Run(ctx, x, y); }, block.mixer);
    });
    AddPreNormResidual(ctx, block.ffn_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& feed_forward) { feed_forward.Run(ctx, x, y); }, block.feed_forward);
    });
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool&) override {
    std::get<ShortConvolution>(blocks_[layer].mixer).Replay(layout(), slot, inputs, tokens);
  }

  const Lfm2Config config_;
  RotaryEmbedding rotary_;
  std::vector<Block> blocks_;
};

}  // namespace

api::Result<std::unique_ptr<Model>> LoadLfm2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const Lfm2Config config = ReadLfm2Config(read);
  return BuildModel<Lfm2>(read, std::move(files), config);
}

}  // namespace quire::runner::models
