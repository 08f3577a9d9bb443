#include "runner/models/kimi_decoder.h"

#include <string>
#include <utility>
#include <variant>

#include "runner/kernels/portable_math.h"
#include "runner/models/residual.h"

namespace quire::runner::models {
namespace {

// h += mixer(norm(h)); h += feed_forward(norm(h)).
struct KimiBlock {
  RmsNorm mixer_norm, mlp_norm;
  std::variant<KimiDelta, LatentAttention> mixer;
  std::variant<GatedMlp, MixtureOfExperts> feed_forward;
};

// Without positions, every angle is 0.
RopeSpec RopeOf(const KimiConfig& config) {
  if (config.rope) return *config.rope;
  return {.frequencies = std::vector<float>(static_cast<size_t>(config.latent.rotary / 2))};
}

class KimiDecoder final : public Decoder {
 public:
  KimiDecoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const KimiConfig& config,
              const KimiNames& names)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(RopeOf(config)) {
    BindEmbedding(bind, names.embedding);
    for (size_t i = 0; i < config.attends.size() && !bind.error(); ++i) {
      BindBlock(bind.Layer(i), names, i);
    }
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  void BindBlock(const TensorScope& scope, const KimiNames& names, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    KimiBlock block;
    block.mixer_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, decoder.hidden);
    if (config_.attends[layer]) {
      block.mixer = BindKimiAttention(scope, names);
    } else {
      block.mixer = BindKimiDelta(scope, names);
    }
    block.mlp_norm = BindNorm(scope, {"post_attention_layernorm", "ffn_norm"}, decoder.hidden);
    if (config_.mixture.sparse[layer]) {
      block.feed_forward = BindKimiExperts(scope, names.mixture);
    } else {
      block.feed_forward = BindMlp(scope, config_.feed_forward);
    }
    blocks_.push_back(std::move(block));
  }

  LatentAttention BindKimiAttention(const TensorScope& scope, const KimiNames& names) {
    const int32_t hidden = config_.decoder.hidden, heads = config_.latent.heads;
    LatentAttention attention = BindLatentAttention(scope, hidden, config_.latent, names.latent);
    attention.rotary = &rotary_;
    attention.binding = AddAttention(config_.latent.Group(), config_.rope ? &rotary_ : nullptr);
    if (config_.latent_gate != OutputGate::Kind::kNone) {
      attention.gate = {.kind = config_.latent_gate,
                        .linear = scope.BindLinear(names.latent_gate, heads, hidden)};
      RowWidths::Grow(scope.widths().attention_gate, heads);
    }
    return attention;
  }

  MixtureOfExperts BindKimiExperts(const TensorScope& scope, const MixtureNames& names) const {
    const MixtureConfig& mixture = config_.mixture;
    MixtureOfExperts moe = BindMixture(scope, config_.decoder.hidden, mixture, names);
    if (mixture.shared_width > 0) {
      RowWidths::Grow(scope.widths().shared, config_.decoder.hidden);
      moe.shared = BindMlp(scope, mixture.shared_width, names.shared);
    }
    return moe;
  }

  KimiDelta BindKimiDelta(const TensorScope& scope, const KimiNames& names) {
    const kernels::GatedDeltaShape& shape = config_.delta;
    const int64_t hidden = config_.decoder.hidden, heads = shape.value_heads, dim = shape.key_dim;
    KimiDelta net;
    net.shape = shape;
    net.q = scope.BindLinear(names.q, shape.keys(), hidden);
    net.k = scope.BindLinear(names.k, shape.keys(), hidden);
    net.v = scope.BindLinear(names.v, shape.values(), hidden);
    if (config_.low_rank) {
      net.decay_down = scope.BindLinear(names.decay_down, dim, hidden);
      net.gate_down = scope.BindLinear(names.gate_down, dim, hidden);
    }
    const int64_t in = config_.low_rank ? dim : hidden;
    net.decay_up = scope.BindLinear(names.decay_up, shape.keys(), in);
    net.gate_up = scope.BindLinear(names.gate_up, shape.values(), in, Bias::kIfStored);
    net.b = scope.BindLinear(names.beta, heads, hidden);
    net.kernel = config_.kernel;
    net.BindTaps(scope, names.q_taps, names.k_taps, names.v_taps);
    net.rate = BindRate(scope, names.rate, heads);
    net.bound = config_.bound;
    net.time_bias = scope.Elements(names.time_bias, shape.keys());
    net.norm = {.weight = scope.Norm(names.norm, shape.value_dim), .eps = config_.decoder.norm_eps};
    net.out = scope.BindLinear(names.out, hidden, shape.values());
    net.GrowWidths(scope.widths());
    net.recurrent_layer = AddRecurrent(net.state()).index;
    return net;
  }

  // -exp(A_log), with a bound exp(A_log). Some GGUF files add ".weight" to its name.
  std::vector<float> BindRate(const TensorScope& scope, TensorName name, int64_t heads) const {
    const std::string longer = std::string(name.gguf) + ".weight";
    if (scope.Has({"", longer})) name.gguf = longer;
    std::vector<float> rates = scope.Elements(name, heads);
    const bool negated = scope.gguf() && config_.rates_negated, negative = config_.bound == 0;
    for (float& rate : rates) {
      if (!scope.gguf()) rate = kernels::Exp(rate);
      if (negated != negative) rate = -rate;
    }
    return rates;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const KimiBlock& block = blocks_[layer];
    AddPreNormResidual(ctx, block.mixer_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& mixer) { mixer.Run(ctx, x, y); }, block.mixer);
    });
    AddPreNormResidual(ctx, block.mlp_norm, h, [&](auto x, auto y) {
      std::visit([&](const auto& feed_forward) { feed_forward.Run(ctx, x, y); }, block.feed_forward);
    });
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    std::get<KimiDelta>(blocks_[layer].mixer).Replay(layout(), pool, slot, inputs, tokens);
  }

  const KimiConfig config_;
  RotaryEmbedding rotary_;
  std::vector<KimiBlock> blocks_;
};

}  // namespace

std::vector<bool> ReadStoredKinds(ConfigReader& read, int32_t layers) {
  std::vector<bool> attends(static_cast<size_t>(layers));
  const std::vector<int64_t> heads = read.Integers({"", "attention.head_count_kv"}, layers, 0, kMaxHeads);
  for (size_t i = 0; i < attends.size(); ++i) attends[i] = heads[i] > 0;
  return attends;
}

api::Result<std::unique_ptr<Model>> BuildKimi(ConfigReader& read,
                                              std::shared_ptr<const weights::ModelFiles> files,
                                              const KimiConfig& config, const KimiNames& names) {
  return BuildModel<KimiDecoder>(read, std::move(files), config, names);
}

}  // namespace quire::runner::models
