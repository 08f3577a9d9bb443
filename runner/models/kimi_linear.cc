#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "runner/kernels/portable_math.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/kimi_delta.h"
#include "runner/models/latent_attention.h"
#include "runner/models/mixture_config.h"
#include "runner/models/residual.h"

namespace quire::runner::models {
namespace {

struct KimiConfig {
  DecoderConfig decoder = {};
  LatentAttentionShape latent = {};
  std::vector<bool> attends = {};  // [layers]; the others are delta nets
  kernels::GatedDeltaShape delta = {};
  int32_t kernel = 0;
  int32_t feed_forward = 0;  // of dense layers
  MixtureConfig mixture = {};
};

// h += mixer(norm(h)); h += feed_forward(norm(h)).
struct KimiBlock {
  RmsNorm mixer_norm, mlp_norm;
  std::variant<KimiDelta, LatentAttention> mixer;
  std::variant<GatedMlp, MixtureOfExperts> feed_forward;
};

class KimiLinear final : public Decoder {
 public:
  KimiLinear(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const KimiConfig& config)
      : Decoder(std::move(files), config.decoder),
        config_(config),
        still_({.frequencies = std::vector<float>(static_cast<size_t>(config.latent.rotary / 2))}) {
    BindEmbedding(bind);
    for (size_t i = 0; i < config.attends.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), i);
    BindHead(bind);
  }

 private:
  void BindBlock(const TensorScope& scope, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    KimiBlock block;
    block.mixer_norm = BindNorm(scope, {"input_layernorm", "attn_norm"}, decoder.hidden);
    if (config_.attends[layer]) {
      LatentAttention attention = BindLatentAttention(scope, decoder.hidden, config_.latent);
      attention.rotary = &still_;
      attention.binding = AddAttention(config_.latent.Group(), nullptr);
      block.mixer = std::move(attention);
    } else {
      block.mixer = BindKimiDelta(scope);
    }
    block.mlp_norm = BindNorm(scope, {"post_attention_layernorm", "ffn_norm"}, decoder.hidden);
    if (config_.mixture.sparse[layer]) {
      block.feed_forward = BindKimiExperts(scope);
    } else {
      block.feed_forward = BindMlp(scope, config_.feed_forward);
    }
    blocks_.push_back(std::move(block));
  }

  MixtureOfExperts BindKimiExperts(const TensorScope& scope) const {
    const MixtureConfig& mixture = config_.mixture;
    MixtureNames names;
    names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
    names.choice_bias = {"block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"};
    names.experts = {.gate = "block_sparse_moe.experts.{}.w1",
                     .up = "block_sparse_moe.experts.{}.w3",
                     .down = "block_sparse_moe.experts.{}.w2",
                     .gate_up_stacked = {},
                     .down_stacked = {}};
    names.shared = {.gate = {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
                    .up = {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
                    .down = {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"}};
    MixtureOfExperts moe = BindMixture(scope, config_.decoder.hidden, mixture, names);
    if (mixture.shared_width > 0) {
      RowWidths::Grow(scope.widths().shared, config_.decoder.hidden);
      moe.shared = BindMlp(scope, mixture.shared_width, names.shared);
    }
    return moe;
  }

  KimiDelta BindKimiDelta(const TensorScope& scope) {
    const kernels::GatedDeltaShape& shape = config_.delta;
    const int64_t hidden = config_.decoder.hidden, heads = shape.value_heads, dim = shape.key_dim;
    KimiDelta net;
    net.shape = shape;
    net.q = scope.BindLinear({"self_attn.q_proj", "attn_q"}, shape.keys(), hidden);
    net.k = scope.BindLinear({"self_attn.k_proj", "attn_k"}, shape.keys(), hidden);
    net.v = scope.BindLinear({"self_attn.v_proj", "attn_v"}, shape.values(), hidden);
    net.decay_down = scope.BindLinear({"self_attn.f_a_proj", "ssm_f_a"}, dim, hidden);
    net.decay_up = scope.BindLinear({"self_attn.f_b_proj", "ssm_f_b"}, shape.keys(), dim);
    net.gate_down = scope.BindLinear({"self_attn.g_a_proj", "ssm_g_a"}, dim, hidden);
    net.gate_up = scope.BindLinear({"self_attn.g_b_proj", "ssm_g_b"}, shape.values(), dim, Bias::kIfStored);
    net.b = scope.BindLinear({"self_attn.b_proj", "ssm_beta"}, heads, hidden);
    net.kernel = config_.kernel;
    net.BindTaps(scope, {"self_attn.q_conv1d", "ssm_conv1d_q"}, {"self_attn.k_conv1d", "ssm_conv1d_k"},
                 {"self_attn.v_conv1d", "ssm_conv1d_v"});
    net.rate = scope.Elements({"self_attn.A_log", RateName(scope)}, heads);  // ssm_a is -exp(A_log)
    if (!scope.gguf()) {
      for (float& rate : net.rate) rate = -kernels::Exp(rate);
    }
    net.time_bias = scope.Elements({"self_attn.dt_bias", "ssm_dt.bias"}, shape.keys());
    net.norm = {.weight = scope.Norm({"self_attn.o_norm", "ssm_norm"}, shape.value_dim),
                .eps = config_.decoder.norm_eps};
    net.out = scope.BindLinear({"self_attn.o_proj", "attn_output"}, hidden, shape.values());
    net.GrowWidths(scope.widths());
    net.recurrent_layer = AddRecurrent(net.state()).index;
    return net;
  }

  static std::string_view RateName(const TensorScope& scope) {
    return scope.Has({"", "ssm_a.weight"}) ? "ssm_a.weight" : "ssm_a";
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { still_.Prepare(ctx); }

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
  RotaryEmbedding still_;  // positions are not encoded: every angle is 0
  std::vector<KimiBlock> blocks_;
};

// Lists of layers, counted from 1, that together name each layer once; a GGUF file has KV heads where a layer
// attends.
std::vector<bool> ReadKimiKinds(ConfigReader& read, int32_t layers) {
  std::vector<bool> attends(static_cast<size_t>(layers));
  if (read.gguf()) {
    const std::vector<int64_t> heads = read.Integers({"", "attention.head_count_kv"}, layers, 0, kMaxHeads);
    for (size_t i = 0; i < attends.size(); ++i) attends[i] = heads[i] > 0;
    return attends;
  }
  std::vector<bool> named(attends.size());
  const auto note = [&](ConfigKey key, bool attending) {
    const auto* list = read.Find(key);
    if (list == nullptr || !list->is_array())
      return read.Fail(fmt::format("{} is not a list", key.hugging_face));
    for (const auto& entry : *list) {
      const int64_t layer = ConfigReader::WholeNumber(entry).value_or(0);
      if (layer < 1 || layer > layers || named[static_cast<size_t>(layer - 1)]) {
        return read.Fail(fmt::format("{} must contain numbers of layers, each once", key.hugging_face));
      }
      named[static_cast<size_t>(layer - 1)] = true;
      attends[static_cast<size_t>(layer - 1)] = attending;
    }
  };
  note({"linear_attn_config/full_attn_layers", ""}, true);
  note({"linear_attn_config/kda_layers", ""}, false);
  if (std::ranges::count(named, false) != 0) read.Fail("linear_attn_config does not name every layer");
  return attends;
}

kernels::GatedDeltaShape ReadKimiDelta(ConfigReader& read, const DecoderConfig& decoder) {
  constexpr int32_t kMaxDim = 1024;
  kernels::GatedDeltaShape shape{.by_channel = true};
  shape.key_heads =
      read.gguf() ? decoder.heads : read.Integer({"linear_attn_config/num_heads", ""}, 1, kMaxHeads);
  shape.value_heads = shape.key_heads;
  shape.key_dim = read.Integer({"linear_attn_config/head_dim", "kda.head_dim"}, 1, kMaxDim);
  shape.value_dim = shape.key_dim;
  if (shape.channels() > kMaxWidth) read.Fail("the delta net has too many channels");
  return shape;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadKimiLinear(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t context = read.Small({"model_max_length", "context_length"}, 1, kMaxContext, 1 << 20);
  KimiConfig config{.decoder = ReadDecoderConfig(
                        read, {.kv_heads = -1, .head_dim = -1, .context = context, .norm_eps = 1e-6F})};
  const DecoderConfig& decoder = config.decoder;
  if (decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  config.attends = ReadKimiKinds(read, decoder.layers);
  config.latent = ReadLatentAttention(read, decoder.heads);
  config.delta = ReadKimiDelta(read, decoder);
  config.kernel =
      read.Small({"linear_attn_config/short_conv_kernel_size", "ssm.conv_kernel"}, 1, kMaxConvKernel);
  config.mixture =
      ReadMixture(read, decoder.layers, {.score = MixtureConfig::Score::kSigmoid, .normalize = true});
  if (config.mixture.score != MixtureConfig::Score::kSigmoid) {
    read.Fail("moe_router_activation_func: only sigmoid is supported");
  }
  if (!read.Boolean({"use_grouped_topk", ""}, true) && config.mixture.groups > 1) {
    read.Fail("use_grouped_topk: only true is supported with several groups");
  }
  if (!read.gguf() && !read.Boolean({"mla_use_nope", ""}, false))
    read.Fail("mla_use_nope: only true is supported");
  if (std::ranges::count(config.mixture.sparse, false) != 0) config.feed_forward = ReadFeedForward(read);
  // No positions are encoded; what latent attention derives from other keys.
  read.Ignore({"rope_theta", "rope_parameters", "head_dim", "num_key_value_heads", "intermediate_size"});
  read.Require("num_nextn_predict_layers", 0.0);
  return BuildModel<KimiLinear>(read, std::move(files), config);
}

}  // namespace quire::runner::models
