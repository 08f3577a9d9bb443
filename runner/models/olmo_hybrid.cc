#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/gated_delta.h"
#include "runner/models/rope.h"

namespace quire::runner::models {
namespace {

constexpr float kDeltaNormEps = 1e-5F;  // whatever rms_norm_eps says

struct OlmoHybridConfig {
  DecoderConfig decoder = {};
  std::optional<RopeSpec> rope = {};  // none: positions are not encoded
  std::vector<bool> attends = {};     // [layers]; the others are delta nets
  kernels::GatedDeltaShape delta = {};
  int32_t kernel = 0;
  float beta_scale = 1;
  Bias attention_bias = Bias::kAbsent;
  int32_t feed_forward = 0;
};

// Delta nets: h += mixer(norm(h)); h += mlp(norm(h)). Attention: h += norm(mixer(h)); h += norm(mlp(h)).
struct OlmoHybridBlock {
  std::variant<GatedDeltaNet, Attention> mixer = {};
  GatedMlp mlp = {};
  RmsNorm mixer_norm, mlp_norm;

  bool attends() const { return std::holds_alternative<Attention>(mixer); }
};

class OlmoHybrid final : public Decoder {
 public:
  OlmoHybrid(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
             const OlmoHybridConfig& config)
      : Decoder(std::move(files), config.decoder), config_(config) {
    if (config.rope) rotary_ = RotaryEmbedding(*config.rope);
    BindEmbedding(bind);
    for (size_t i = 0; i < config.attends.size() && !bind.error(); ++i) {
      blocks_.push_back(config.attends[i] ? AttentionBlock(bind.Layer(i)) : DeltaBlock(bind.Layer(i)));
    }
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  // The first of the names that is stored: transformers loads norms under its names and under the published
  // ones, and writes some under the latter.
  RmsNorm BindAnyNorm(const TensorScope& scope, const char* name, const char* published) const {
    const TensorName other = {published, ""};
    return BindNorm(scope, scope.HasWeight(other) ? other : TensorName{name, ""}, config_.decoder.hidden);
  }

  OlmoHybridBlock AttentionBlock(const TensorScope& scope) {
    const DecoderConfig& decoder = config_.decoder;
    return {.mixer = BindAttention(scope,
                                   {.heads = decoder.heads,
                                    .kv_heads = decoder.kv_heads,
                                    .head_dim = decoder.head_dim,
                                    .qk_norm = QkNorm::kRow,
                                    .bias = config_.attention_bias,
                                    .out_bias = config_.attention_bias},
                                   config_.rope ? &rotary_ : nullptr),
            .mlp = BindMlp(scope, config_.feed_forward),
            .mixer_norm = BindAnyNorm(scope, "post_attention_layernorm", "feedforward_layer_norm"),
            .mlp_norm = BindAnyNorm(scope, "post_feedforward_layernorm", "post_feedforward_layernorm")};
  }

  OlmoHybridBlock DeltaBlock(const TensorScope& scope) {
    return {.mixer = BindNet(scope),
            .mlp = BindMlp(scope, config_.feed_forward),
            .mixer_norm = BindAnyNorm(scope, "input_layernorm", "attention_layer_norm"),
            .mlp_norm = BindAnyNorm(scope, "post_attention_layernorm", "feedforward_layer_norm")};
  }

  GatedDeltaNet BindNet(const TensorScope& scope) {
    const kernels::GatedDeltaShape& shape = config_.delta;
    const int64_t hidden = config_.decoder.hidden, heads = shape.value_heads;
    GatedDeltaNet net;
    net.shape = shape;
    net.query = scope.BindLinear({"linear_attn.q_proj", ""}, shape.keys(), hidden);
    net.key = scope.BindLinear({"linear_attn.k_proj", ""}, shape.keys(), hidden);
    net.value = scope.BindLinear({"linear_attn.v_proj", ""}, shape.values(), hidden);
    net.z = scope.BindLinear({"linear_attn.g_proj", ""}, shape.values(), hidden);
    net.a = scope.BindLinear({"linear_attn.a_proj", ""}, heads, hidden);
    net.b = scope.BindLinear({"linear_attn.b_proj", ""}, heads, hidden);
    net.kernel = config_.kernel;
    net.BindTaps(scope, {"linear_attn.q_conv1d", ""}, {"linear_attn.k_conv1d", ""},
                 {"linear_attn.v_conv1d", ""});
    net.rate = scope.Values({"linear_attn.A_log", ""}, heads);
    for (float& rate : net.rate) rate = -kernels::Exp(rate);
    net.time_bias = scope.Values({"linear_attn.dt_bias", ""}, heads);
    net.beta_scale = config_.beta_scale;
    net.norm = {.weight = scope.Norm({"linear_attn.o_norm", ""}, shape.value_dim), .eps = kDeltaNormEps};
    net.out = scope.BindLinear({"linear_attn.o_proj", ""}, hidden, shape.values());
    net.GrowWidths(scope.widths());
    net.recurrent_layer = AddRecurrent(net.state()).index;
    return net;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override {
    if (config_.rope) rotary_.Prepare(ctx);
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const OlmoHybridBlock& block = blocks_[layer];
    const auto add = [&](const RmsNorm& norm, const auto& part) {
      const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
      if (block.attends()) {
        part.Run(ctx, h, mixed);
        norm.Run(ctx.pool, mixed, mixed);
      } else {
        const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
        norm.Run(ctx.pool, h, normed);
        part.Run(ctx, normed, mixed);
      }
      kernels::Add(ctx.pool, mixed, h);
    };
    std::visit([&](const auto& mixer) { add(block.mixer_norm, mixer); }, block.mixer);
    add(block.mlp_norm, block.mlp);
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    std::get<GatedDeltaNet>(blocks_[layer].mixer).Replay(layout(), pool, slot, inputs, tokens);
  }

  const OlmoHybridConfig config_;
  RotaryEmbedding rotary_;
  std::vector<OlmoHybridBlock> blocks_;
};

// Without a list, every fourth layer attends, or else the last.
std::vector<bool> ReadOlmoKinds(ConfigReader& read, int32_t layers) {
  constexpr ConfigKey kTypes = {"layer_types", ""};
  if (const auto listed = read.Kinds(kTypes, layers, "full_attention", "linear_attention")) return *listed;
  std::vector<bool> attends(static_cast<size_t>(layers));
  for (size_t i = 3; i < attends.size(); i += 4) attends[i] = true;
  if (attends.size() < 4) attends.back() = true;
  return attends;
}

kernels::GatedDeltaShape ReadOlmoDelta(ConfigReader& read, const DecoderConfig& decoder) {
  constexpr int32_t kMaxDim = 1024;
  kernels::GatedDeltaShape shape;
  shape.key_heads = read.Integer({"linear_num_key_heads", ""}, 1, kMaxHeads, decoder.heads);
  shape.value_heads = read.Integer({"linear_num_value_heads", ""}, 1, kMaxHeads, decoder.heads);
  const int64_t key_dim = std::clamp<int64_t>(3 * decoder.hidden / 4 / shape.key_heads, 1, kMaxDim);
  shape.key_dim = read.Integer({"linear_key_head_dim", ""}, 1, kMaxDim, key_dim);
  shape.value_dim =
      read.Integer({"linear_value_head_dim", ""}, 1, kMaxDim, std::min<int64_t>(2 * shape.key_dim, kMaxDim));
  if (shape.value_heads % shape.key_heads != 0)
    read.Fail("linear_num_value_heads is no multiple of the key heads");
  if (shape.channels() > kMaxWidth) read.Fail("the delta net has too many channels");
  return shape;
}

// An explicit null: no positions. Without the key there are some, as transformers has it.
bool HasNoPositions(const ConfigReader& read) {
  if (read.Find({"rope_theta", ""}) != nullptr) return false;
  const auto* rope = read.Find({"rope_parameters", ""});
  if (rope == nullptr || !rope->is_object()) return false;
  const auto theta = rope->find("rope_theta");
  return theta != rope->end() && theta->is_null();
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadOlmoHybrid(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  OlmoHybridConfig config{.decoder = ReadDecoderConfig(read, {.context = 65536, .norm_eps = 1e-6F})};
  if (config.decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  config.attends = ReadOlmoKinds(read, config.decoder.layers);
  config.delta = ReadOlmoDelta(read, config.decoder);
  config.kernel = read.Small({"linear_conv_kernel_dim", ""}, 1, kMaxConvKernel, 4);
  config.beta_scale = read.Boolean({"linear_allow_neg_eigval", ""}, true) ? 2.0F : 1.0F;
  config.attention_bias = read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  config.feed_forward = ReadFeedForward(read);
  if (!HasNoPositions(read)) {
    config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 10000});
  }
  read.Ignore(
      {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"});
  return BuildModel<OlmoHybrid>(read, std::move(files), config);
}

}  // namespace quire::runner::models
