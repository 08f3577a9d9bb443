#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/lightning_attention.h"
#include "runner/models/mixture_config.h"
#include "runner/models/rope.h"

namespace quire::runner::models {
namespace {

constexpr float kLightningNormEps = 1e-6F;  // whatever rms_norm_eps says

// h = alpha n + beta part(n), n = norm(h).
struct ResidualScales {
  float alpha = 1, beta = 1;
};

struct MiniMaxConfig {
  DecoderConfig decoder = {};
  RopeSpec rope = {};
  std::vector<bool> attends = {};  // [layers]; the others have lightning attention
  int32_t window = 0;              // of full attention
  MixtureConfig mixture = {};
  ResidualScales full = {}, linear = {}, mlp = {};
};

struct MiniMaxBlock {
  RmsNorm mixer_norm, mlp_norm;
  std::variant<LightningAttention, Attention> mixer;
  MixtureOfExperts mlp;
};

// exp(-slope) of each head: the slopes of ALiBi, less from layer to layer.
std::vector<float> LightningDecay(int32_t heads, size_t layer, int32_t layers) {
  const double base = 1 / std::exp2(8.0 / heads);
  const double share = 1 - static_cast<double>(layer) / (layers - 1 + 1e-5) + 1e-5;
  std::vector<float> decay;
  decay.reserve(static_cast<size_t>(heads));
  for (int32_t head = 1; head <= heads; ++head) {
    const auto slope = static_cast<float>(std::pow(base, head));
    decay.push_back(kernels::Exp(-slope * static_cast<float>(share)));
  }
  return decay;
}

class MiniMax final : public Decoder {
 public:
  MiniMax(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const MiniMaxConfig& config)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(config.rope) {
    BindEmbedding(bind);
    for (size_t i = 0; i < config.attends.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), i);
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  void BindBlock(const TensorScope& scope, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    MiniMaxBlock block;
    block.mixer_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, decoder.hidden);
    if (config_.attends[layer]) {
      block.mixer = BindAttention(scope,
                                  {.heads = decoder.heads,
                                   .kv_heads = decoder.kv_heads,
                                   .head_dim = decoder.head_dim,
                                   .window = config_.window},
                                  &rotary_);
    } else {
      block.mixer = BindLightning(scope, layer);
    }
    block.mlp_norm = BindNorm(scope, {"post_attention_layernorm", "ffn_norm"}, decoder.hidden);
    MixtureNames names;
    names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
    names.experts = kMixtralExperts;
    block.mlp = BindMixture(scope, decoder.hidden, config_.mixture, names);
    blocks_.push_back(std::move(block));
  }

  LightningAttention BindLightning(const TensorScope& scope, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    const int64_t inner = int64_t{decoder.heads} * decoder.head_dim;
    LightningAttention lightning;
    lightning.heads = decoder.heads;
    lightning.head_dim = decoder.head_dim;
    lightning.qkv = scope.BindLinear({"self_attn.qkv_proj", "attn_qkv"}, 3 * inner, decoder.hidden);
    lightning.gate = scope.BindLinear({"self_attn.output_gate", "attn_gate"}, inner, decoder.hidden);
    lightning.out = scope.BindLinear({"self_attn.out_proj", "attn_output"}, decoder.hidden, inner);
    lightning.norm = {.weight = scope.Norm({"self_attn.norm", "attn_norm_2"}, inner),
                      .eps = kLightningNormEps};
    lightning.decay = LightningDecay(decoder.heads, layer, decoder.layers);
    CheckSlopes(scope, lightning.decay);
    lightning.GrowWidths(scope.widths());
    lightning.recurrent_layer = AddStateSpace(lightning.state(), static_cast<int32_t>(layer));
    return lightning;
  }

  // What transformers stores of the slopes is the formula, rounded; other ones would be another model.
  static void CheckSlopes(const TensorScope& scope, std::span<const float> decay) {
    constexpr TensorName kSlopes = {"self_attn.slope_rate", ""};
    if (scope.gguf() || !scope.CanRead(kSlopes)) return;
    const std::vector<float> stored = scope.Elements(kSlopes, std::ssize(decay));
    for (size_t i = 0; i < stored.size(); ++i) {
      const float slope = -std::log(decay[i]);
      if (std::abs(stored[i] - slope) <= 0.01F * slope + 1e-6F) continue;
      return scope.Fail(
          kSlopes, fmt::format("number {} is {}, but only the slopes of the formula are supported: {}", i,
                               stored[i], slope));
    }
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const MiniMaxBlock& block = blocks_[layer];
    const auto run = [&](const RmsNorm& norm, const auto& part, const ResidualScales& scales) {
      const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
      norm.Run(ctx.pool, h, h);
      part.Run(ctx, h, mixed);
      if (scales.beta != 1) kernels::Scale(ctx.pool, scales.beta, mixed);
      if (scales.alpha != 1) kernels::Scale(ctx.pool, scales.alpha, h);
      kernels::Add(ctx.pool, mixed, h);
    };
    const ResidualScales& scales = config_.attends[layer] ? config_.full : config_.linear;
    std::visit([&](const auto& mixer) { run(block.mixer_norm, mixer, scales); }, block.mixer);
    run(block.mlp_norm, block.mlp, config_.mlp);
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    std::get<LightningAttention>(blocks_[layer].mixer).Replay(layout(), pool, slot, inputs, tokens);
  }

  const MiniMaxConfig config_;
  RotaryEmbedding rotary_;
  std::vector<MiniMaxBlock> blocks_;
};

// By name, or by number: 1 is full attention. Without a list, every other layer, the first among them.
std::vector<bool> ReadMiniMaxKinds(ConfigReader& read, int32_t layers) {
  if (read.gguf()) {
    const int32_t period = read.Small({"", "full_attention_interval"}, 1, kMaxLayers, 8);
    const auto stored = read.Booleans({"", "attention.recurrent_layers"}, layers);
    std::vector<bool> kinds(static_cast<size_t>(layers));
    for (size_t i = 0; i < kinds.size(); ++i) {
      kinds[i] = stored ? !(*stored)[i] : (i + 1) % static_cast<size_t>(period) == 0;
    }
    return kinds;
  }
  constexpr ConfigKey kTypes = {"layer_types", ""}, kNumbers = {"attn_type_list", ""};
  const bool numbered = read.Find(kNumbers) != nullptr;
  if (const auto listed = read.Kinds(kTypes, layers, "full_attention", "linear_attention")) return *listed;
  std::vector<bool> attends(static_cast<size_t>(layers));
  for (size_t i = 0; i < attends.size(); i += 2) attends[i] = true;
  if (numbered) {
    const std::vector<int64_t> numbers = read.Integers(kNumbers, layers, 0, 1);
    for (size_t i = 0; i < attends.size(); ++i) attends[i] = numbers[i] == 1;
  } else if (read.files().architecture() != "minimax") {
    read.Fail("the configuration lacks attn_type_list");
  }
  return attends;
}

ResidualScales ReadScales(ConfigReader& read, std::string_view name, std::string_view published) {
  // GGUF files are of models with one alpha for all, and without betas.
  if (read.gguf()) return {.alpha = ReadMultiplier(read, {"", "residual_scale"})};
  const auto factor = [&](const char* kind) {
    const std::string key = fmt::format("{}_{}_factor|layernorm_{}_{}", name, kind, published, kind);
    return ReadMultiplier(read, {key, ""});
  };
  return {.alpha = factor("alpha"), .beta = factor("beta")};
}

// The original checkpoints have keys for what none of them uses.
void ReadOriginalKeys(ConfigReader& read, const MiniMaxConfig& config) {
  if (const auto* shared = read.Find({"shared_intermediate_size", ""}); shared != nullptr) {
    const auto is_zero = [](const auto& value) { return ConfigReader::WholeNumber(value) == 0; };
    const bool none = shared->is_array() ? std::ranges::all_of(*shared, is_zero) : is_zero(*shared);
    if (!none) read.Fail("shared_intermediate_size: shared experts are not supported");
  }
  read.Ignore({"shared_moe_mode", "block_size"});
  if (read.files().architecture() == "minimax") return;
  if (!read.Boolean({"postnorm", ""}, read.gguf())) read.Fail("postnorm: only true is supported");
  // For other numbers of heads the original code has other slopes.
  if (!std::has_single_bit(static_cast<uint32_t>(config.decoder.heads))) {
    read.Fail("num_attention_heads (attention.head_count): only powers of 2 are supported");
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadMiniMax(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  MiniMaxConfig config{.decoder = ReadDecoderConfig(read, {.context = 131072, .norm_eps = 1e-5F})};
  const DecoderConfig& decoder = config.decoder;
  if (decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  if (3 * int64_t{decoder.heads} * decoder.head_dim > kMaxWidth) read.Fail("the attention is too wide");
  config.attends = ReadMiniMaxKinds(read, decoder.layers);
  config.window = read.Small({"sliding_window", ""}, 0, kMaxContext, 0);
  const int32_t rotated = read.Small({"rotary_dim", ""}, 2, decoder.head_dim, decoder.head_dim);
  config.rope = ReadRope(read, {.head_dim = decoder.head_dim,
                                .default_theta = 1e6,
                                .partial = static_cast<double>(rotated) / decoder.head_dim});
  config.mixture = ReadMixture(read, decoder.layers, {.normalize = true});
  config.full = ReadScales(read, "full_attn", "full_attention");
  config.linear = ReadScales(read, "linear_attn", "linear_attention");
  config.mlp = ReadScales(read, "mlp", "mlp");
  ReadOriginalKeys(read, config);
  return BuildModel<MiniMax>(read, std::move(files), config);
}

}  // namespace quire::runner::models
