#include <utility>
#include <variant>

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
    GatedDeltaNet net = BindQwenDelta(scope, config_);
    net.recurrent_layer =
        AddRecurrent(net.state(), shape.tiled ? static_cast<int32_t>(shape.key_heads) : 0).index;
    return net;
  }

  MixtureOfExperts BindMixture(const TensorScope& scope) const {
    MixtureOfExperts moe = BindQwenExperts(scope, config_);
    moe.shared = BindMlp(scope, config_.shared_feed_forward, kQwenSharedNames);
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
