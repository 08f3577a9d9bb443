#include <utility>
#include <variant>

#include "runner/kernels/portable_math.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/gated_delta.h"
#include "runner/models/moe.h"
#include "runner/models/mtp_join.h"
#include "runner/models/panel_store.h"
#include "runner/models/qwen3_next_config.h"
#include "runner/models/residual.h"

namespace quire::runner::models {
namespace {

constexpr MlpNames kSharedNames = {.gate = {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                   .up = {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                   .down = {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};
constexpr ExpertNames kExpertNames = {.gate = "mlp.experts.{}.gate_proj",
                                      .up = "mlp.experts.{}.up_proj",
                                      .down = "mlp.experts.{}.down_proj",
                                      .gate_up_stacked = "mlp.experts.gate_up_proj",
                                      .down_stacked = "mlp.experts.down_proj"};

// h += mixer(norm(h)); h += feed_forward(norm(h)).
struct Block {
  RmsNorm mixer_norm;
  std::variant<Attention, GatedDeltaNet> mixer;
  RmsNorm mlp_norm;
  std::variant<GatedMlp, MixtureOfExperts> feed_forward;
};

// The family's layers; who has which is left to others.
class Qwen3NextLayers : public Decoder {
 public:
  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 protected:
  Qwen3NextLayers(std::shared_ptr<const weights::ModelFiles> files, const Qwen3NextConfig& config)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(config.rope) {
    image_rules_.grid_positions = !config.rope.axes.empty();
  }

  void BindBlock(const TensorScope& scope, bool attends, bool sparse) {
    const DecoderConfig& decoder = config_.decoder;
    Block block;
    block.mixer_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, decoder.hidden);
    if (attends) {
      block.mixer = BindAttention(scope,
                                  {.heads = decoder.heads,
                                   .kv_heads = decoder.kv_heads,
                                   .head_dim = decoder.head_dim,
                                   .qk_norm = QkNorm::kHeads,
                                   .gated = true},
                                  &rotary_);
    } else {
      block.mixer = BindDelta(scope);
    }
    block.mlp_norm = BindNorm(scope, {"post_attention_layernorm", "post_attention_norm"}, decoder.hidden);
    if (sparse) {
      block.feed_forward = BindMixture(scope);
    } else {
      block.feed_forward = BindMlp(scope, config_.feed_forward);
    }
    blocks_.push_back(std::move(block));
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Block& block = blocks_[layer];
    AddPreNormResidual(ctx, block.mixer_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& mixer) { mixer.Run(ctx, x, y); }, block.mixer);
    });
    AddPreNormResidual(ctx, block.mlp_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& feed_forward) { feed_forward.Run(ctx, x, y); }, block.feed_forward);
    });
  }

 private:
  GatedDeltaNet BindDelta(const TensorScope& scope) {
    const kernels::GatedDeltaShape& shape = config_.delta;
    const int64_t hidden = config_.decoder.hidden, heads = shape.value_heads;
    GatedDeltaNet net;
    net.shape = shape;
    // Early files of llama.cpp keep the checkpoint's one matrix.
    const bool one_matrix = !scope.gguf() || scope.Has({"", "ssm_in.weight"});
    if (config_.grouped_projections && one_matrix) {
      net.qkvz =
          scope.BindLinear({"linear_attn.in_proj_qkvz", "ssm_in"}, shape.channels() + shape.values(), hidden);
    } else {
      net.qkv = scope.BindLinear({"linear_attn.in_proj_qkv", "attn_qkv"}, shape.channels(), hidden);
      net.z = scope.BindLinear({"linear_attn.in_proj_z", "attn_gate"}, shape.values(), hidden);
    }
    if (config_.grouped_projections) {
      net.ba = scope.BindLinear({"linear_attn.in_proj_ba", "ssm_ba"}, 2 * heads, hidden);
    } else {
      net.a = scope.BindLinear({"linear_attn.in_proj_a", "ssm_alpha"}, heads, hidden);
      net.b = scope.BindLinear({"linear_attn.in_proj_b", "ssm_beta"}, heads, hidden);
    }
    net.taps = scope.Taps({"linear_attn.conv1d", "ssm_conv1d"}, shape.channels(), config_.conv_kernel);
    net.kernel = config_.conv_kernel;
    net.rate = scope.Values({"linear_attn.A_log", "ssm_a"}, heads);  // ssm_a is -exp(A_log)
    if (!scope.gguf()) {
      for (float& rate : net.rate) rate = -kernels::Exp(rate);
    }
    net.time_bias = scope.Values({"linear_attn.dt_bias", "ssm_dt.bias"}, heads);
    // The one norm of the family that is not zero-centered.
    net.norm = {.weight = scope.Norm({"linear_attn.norm", "ssm_norm"}, shape.value_dim),
                .eps = config_.decoder.norm_eps};
    net.out = scope.BindLinear({"linear_attn.out_proj", "ssm_out"}, hidden, shape.values());
    net.GrowWidths(scope.widths());
    net.recurrent_layer =
        AddRecurrent(net.state(), shape.tiled ? static_cast<int32_t>(shape.key_heads) : 0).index;
    return net;
  }

  MixtureOfExperts BindMixture(const TensorScope& scope) const {
    const int64_t experts = config_.experts, hidden = config_.decoder.hidden;
    MixtureOfExperts moe;
    moe.router = scope.BindLinear({"mlp.gate", "ffn_gate_inp"}, experts, hidden);
    moe.chosen = config_.experts_used;
    moe.normalize = config_.normalize;
    moe.activation = config_.decoder.activation;
    BindExperts(scope, kExpertNames, experts, hidden, config_.expert_feed_forward, &moe);
    RowWidths::Grow(scope.widths().shared, hidden);
    moe.shared = BindMlp(scope, config_.shared_feed_forward, kSharedNames);
    moe.shared_gate = scope.BindLinear({"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}, 1, hidden);
    return moe;
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    std::get<GatedDeltaNet>(blocks_[layer].mixer).Replay(layout(), pool, slot, inputs, tokens);
  }

  const Qwen3NextConfig config_;
  RotaryEmbedding rotary_;
  std::vector<Block> blocks_;
};

class Qwen3Next final : public Qwen3NextLayers {
 public:
  Qwen3Next(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
            const Qwen3NextConfig& config)
      : Qwen3NextLayers(std::move(files), config) {
    BindEmbedding(bind);
    for (size_t i = 0; i < config.is_attention.size() && !bind.error(); ++i) {
      BindBlock(bind.Layer(i), config.is_attention[i], config.is_sparse[i]);
    }
    BindHead(bind);
  }
};

// A joined input, one attention layer, a final norm and the target's head. As vllm's qwen3_next_mtp has it;
// nothing in transformers runs it.
class Qwen3NextMtp final : public Qwen3NextLayers {
 public:
  Qwen3NextMtp(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
               const Qwen3NextConfig& config, const Decoder& target)
      : Qwen3NextLayers(std::move(files), config) {
    const int64_t hidden = config.decoder.hidden;
    const auto layers = static_cast<size_t>(config.decoder.layers);
    const TensorScope scope = bind.MtpScope(layers);
    input.token_norm = BindNorm(scope, {"pre_fc_norm_embedding", "enorm"}, config.decoder.hidden);
    input.before_norm = BindNorm(scope, {"pre_fc_norm_hidden", "hnorm"}, config.decoder.hidden);
    input.join = scope.BindLinear({"fc", "eh_proj"}, hidden, 2 * hidden);
    BindBlock(bind.MtpLayerScope(layers), /*attends=*/true, /*sparse=*/config.experts > 0);
    ShareEmbeddingAndHead(target, scope, {"norm", "shared_head_norm"}, bind);
  }

  MtpJoin input;

 private:
  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    input.Run(ctx, h);
    Qwen3NextLayers::RunLayer(ctx, layer, h);
  }
};

}  // namespace

api::Result<std::unique_ptr<Model>> LoadQwen3Next(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const Qwen3NextConfig config = ReadQwen3NextConfig(read);
  return BuildModel<Qwen3Next>(read, std::move(files), config);
}

api::Result<std::unique_ptr<MtpLayer>> LoadQwen3NextMtp(std::shared_ptr<const weights::ModelFiles> files,
                                                        const Model& target, api::KvType kv_type) {
  const auto* const decoder = dynamic_cast<const Qwen3Next*>(&target);
  if (decoder == nullptr) return nullptr;
  ConfigReader read(*files);
  const Qwen3NextConfig config = ReadQwen3NextConfig(read);
  if (read.error()) return std::unexpected(*read.error());
  const bool present = read.gguf() ? config.mtp_layers > 0 : files->Find("mtp.fc.weight") != nullptr;
  if (!present) return nullptr;
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  auto layer = std::make_unique<Qwen3NextMtp>(files, bind, config, *decoder);
  return FinishMtpLayer(bind, std::move(layer), kv_type);
}

}  // namespace quire::runner::models
