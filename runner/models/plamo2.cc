#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/plamo2_mixer.h"
#include "runner/models/rope.h"

namespace quire::runner::models {
namespace {

// Directories store the weights of norms less these numbers; those before a part, and the last one, less 1.
constexpr float kBehindMixer = 0.2F;
constexpr float kBehindMlp = 0.08944271909999159F;  // 5^-1.5

struct Plamo2Config {
  DecoderConfig decoder = {};
  RopeSpec rope = {};
  std::vector<bool> attends = {};     // [layers]; the others have a state space
  std::vector<int32_t> windows = {};  // [layers]
  kernels::SsdShape shape = {};
  int32_t kernel = 0;
  int32_t step_rank = 0;
  int32_t feed_forward = 0;
};

// h += norm(mixer(norm(h))); h += norm(mlp(norm(h))).
struct Plamo2Block {
  std::variant<Plamo2Mixer, Attention> mixer = {};
  GatedMlp mlp = {};
  RmsNorm mixer_norm, behind_mixer, mlp_norm, behind_mlp;
};

class Plamo2 final : public Decoder {
 public:
  Plamo2(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const Plamo2Config& config)
      : Decoder(std::move(files), config.decoder), config_(config), rotary_(config.rope) {
    BindEmbedding(bind);
    for (size_t i = 0; i < config.attends.size() && !bind.error(); ++i) {
      blocks_.push_back(
          BindBlock(bind.gguf() ? bind.Layer(i) : bind.Named(fmt::format("model.layers.layers.{}.", i)), i));
    }
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  size_t layers() const override { return blocks_.size(); }

  Plamo2Block BindBlock(const TensorScope& scope, size_t layer) {
    const int32_t hidden = config_.decoder.hidden;
    Plamo2Block block;
    block.mixer_norm = BindNorm(scope, {"pre_mixer_norm", "attn_norm"}, hidden);
    if (config_.attends[layer]) {
      block.mixer = BindHeads(scope, layer);
    } else {
      block.mixer = BindMixer(scope, layer);
    }
    block.behind_mixer = NormBehind(scope, {"post_mixer_norm.weight", "post_attention_norm"}, kBehindMixer);
    block.mlp_norm = BindNorm(scope, {"pre_mlp_norm", "ffn_norm"}, hidden);
    block.mlp = BindMlp(scope, config_.feed_forward,
                        {.gate = {},
                         .up = {},
                         .down = {"mlp.down_proj", "ffn_down"},
                         .gate_up = {"mlp.gate_up_proj", "ffn_up"}});
    block.behind_mlp = NormBehind(scope, {"post_mlp_norm.weight", "post_ffw_norm"}, kBehindMlp);
    return block;
  }

  // A vector of this complete name, or in a GGUF file with ".weight" behind it: converters differ.
  static std::vector<float> AnyValues(const TensorScope& scope, TensorName name, int64_t size) {
    return scope.gguf() && scope.HasWeight(name) ? scope.Norm(name, size) : scope.Values(name, size);
  }
  RmsNorm NormBehind(const TensorScope& scope, TensorName name, float less) const {
    RmsNorm norm{.weight = AnyValues(scope, name, config_.decoder.hidden), .eps = config_.decoder.norm_eps};
    if (!scope.gguf()) {
      for (float& weight : norm.weight) weight += less;
    }
    return norm;
  }
  RmsNorm PlainNorm(const TensorScope& scope, TensorName name, int64_t size) const {
    return {.weight = AnyValues(scope, name, size), .eps = config_.decoder.norm_eps};
  }

  // The norms have weights for each head.
  Attention BindHeads(const TensorScope& scope, size_t layer) {
    const DecoderConfig& decoder = config_.decoder;
    Attention attention = BindAttention(scope,
                                        {.heads = decoder.heads,
                                         .kv_heads = decoder.kv_heads,
                                         .head_dim = decoder.head_dim,
                                         .window = config_.windows[layer],
                                         .qk_norm = QkNorm::kUnitHeads,
                                         .decoder_layer = static_cast<int32_t>(layer)},
                                        &rotary_,
                                        {.q = {},
                                         .k = {},
                                         .v = {},
                                         .out = {"mixer.o_proj", "attn_output"},
                                         .q_norm = {},
                                         .k_norm = {},
                                         .qkv = {"mixer.qkv_proj", "attn_qkv"}});
    attention.q_weights = HeadWeights(scope, {"mixer.q_weight", "attn_q_norm"}, decoder.heads);
    attention.k_weights = HeadWeights(scope, {"mixer.k_weight", "attn_k_norm"}, decoder.kv_heads);
    return attention;
  }
  std::vector<float> HeadWeights(const TensorScope& scope, TensorName name, int32_t heads) const {
    const std::string gguf = std::string(name.gguf) + (scope.HasWeight(name) ? ".weight" : "");
    return scope.Table({name.hugging_face, gguf}, heads, config_.decoder.head_dim);
  }

  Plamo2Mixer BindMixer(const TensorScope& scope, size_t layer) {
    const kernels::SsdShape& shape = config_.shape;
    const int64_t hidden = config_.decoder.hidden, inner = shape.inner(), rank = config_.step_rank;
    Plamo2Mixer mixer;
    mixer.shape = shape;
    mixer.step_rank = rank;
    mixer.in = scope.BindLinear({"mixer.in_proj", "ssm_in"}, 2 * inner, hidden);
    const int64_t sizes[] = {shape.state, shape.state, rank};
    std::vector<Linear> parts = scope.BindRows({"mixer.bcdt_proj", "ssm_x"}, sizes, inner);
    mixer.b = std::move(parts[0]);
    mixer.c = std::move(parts[1]);
    mixer.step = std::move(parts[2]);
    mixer.b_norm = PlainNorm(scope, {"mixer.B_norm_weight", "ssm_b_norm"}, shape.state);
    mixer.c_norm = PlainNorm(scope, {"mixer.C_norm_weight", "ssm_c_norm"}, shape.state);
    mixer.step_norm = PlainNorm(scope, {"mixer.dt_norm_weight", "ssm_dt_norm"}, rank);
    // The kernel adds the bias.
    const bool gguf = scope.gguf();
    mixer.step_up = scope.BindLinear({"mixer.dt_proj", "ssm_dt"}, shape.heads, rank,
                                     gguf ? Bias::kPresent : Bias::kAbsent);
    mixer.time_bias =
        gguf ? std::exchange(mixer.step_up.bias, {}) : scope.Values({"mixer.dt_bias", ""}, shape.heads);
    mixer.taps = scope.Taps({"mixer.conv1d", "ssm_conv1d"}, inner, config_.kernel);
    mixer.kernel = config_.kernel;
    mixer.rate = scope.Elements({"mixer.A_log", "ssm_a"}, shape.heads);
    if (!gguf) {
      for (float& rate : mixer.rate) rate = -kernels::Exp(rate);
    }
    mixer.skip = scope.Elements({"mixer.D", "ssm_d"}, shape.heads);
    mixer.out = scope.BindLinear({"mixer.out_proj", "ssm_out"}, hidden, inner);
    mixer.GrowWidths(scope.widths());
    mixer.recurrent_layer = AddStateSpace(mixer.state(), static_cast<int32_t>(layer));
    return mixer;
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const Plamo2Block& block = blocks_[layer];
    const auto add = [&](const RmsNorm& before, const auto& part, const RmsNorm& behind) {
      const std::span<float> normed = ctx.work.normed.Get(static_cast<int64_t>(h.size()));
      const std::span<float> mixed = ctx.work.mixed.Get(static_cast<int64_t>(h.size()));
      before.Run(ctx.pool, h, normed);
      part.Run(ctx, normed, mixed);
      behind.Run(ctx.pool, mixed, mixed);
      kernels::Add(ctx.pool, mixed, h);
    };
    std::visit([&](const auto& mixer) { add(block.mixer_norm, mixer, block.behind_mixer); }, block.mixer);
    add(block.mlp_norm, block.mlp, block.behind_mlp);
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    std::get<Plamo2Mixer>(blocks_[layer].mixer).Replay(layout(), pool, slot, inputs, tokens);
  }

  const Plamo2Config config_;
  RotaryEmbedding rotary_;
  std::vector<Plamo2Block> blocks_;
};

// In a GGUF file a list of heads per layer, in which layers with a state space have none.
int32_t ReadLayerHeads(ConfigReader& read, ConfigKey key, int32_t layers, std::vector<bool>* attends) {
  if (!read.gguf()) return read.Small(key, 1, kMaxHeads);
  int64_t heads = 0;
  const std::vector<int64_t> by_layer = read.Integers(key, layers, 0, kMaxHeads);
  for (size_t i = 0; i < by_layer.size(); ++i) {
    if (by_layer[i] == 0) continue;
    (*attends)[i] = true;
    if (heads != 0 && heads != by_layer[i]) read.Fail(fmt::format("{}: layers differ", read.Name(key)));
    heads = by_layer[i];
  }
  return static_cast<int32_t>(std::max<int64_t>(heads, 1));
}

// One layer of mamba_step attends, or the last one where that is beyond them.
void ReadKinds(ConfigReader& read, Plamo2Config* config) {
  const int32_t layers = config->decoder.layers;
  const int32_t step = read.Small({"mamba_step", ""}, 2, 2 * kMaxLayers, 2);
  read.Require("mamba_enabled", true);
  for (int32_t i = 0; i < layers; ++i) {
    config->attends[static_cast<size_t>(i)] = layers <= step / 2 ? i == layers - 1 : i % step == step / 2;
  }
}

// Layers that attend have a window but those of full_attention_idx. GGUF files say nothing of windows.
void ReadWindowSizes(ConfigReader& read, Plamo2Config* config) {
  const int32_t window = read.Small({"attention_window_size", ""}, 1, kMaxContext, 2048);
  for (size_t i = 0; i < config->windows.size(); ++i) config->windows[i] = config->attends[i] ? window : 0;
  const auto* whole = read.Find({"full_attention_idx", ""});
  if (whole == nullptr) return;
  for (const auto& layer : *whole) {
    const auto index = ConfigReader::WholeNumber(layer);
    if (!whole->is_array() || !index || *index < 0 || *index >= config->decoder.layers) {
      return read.Fail("full_attention_idx is not a list of layers");
    }
    config->windows[static_cast<size_t>(*index)] = 0;
  }
}

void ReadStateSpace(ConfigReader& read, Plamo2Config* config) {
  kernels::SsdShape& shape = config->shape;
  shape.heads = read.Small({"mamba_num_heads", "ssm.time_step_rank"}, 1, kMaxHeads);
  shape.groups = 1;
  shape.state = read.Small({"mamba_d_state", "ssm.state_size"}, 1, 1 << 16);
  shape.head_dim = config->decoder.head_dim;
  if (read.gguf()) {
    const int64_t inner = read.Integer({"", "ssm.inner_size"}, 1, kMaxWidth);
    shape.head_dim = inner / shape.heads;
    if (shape.inner() != inner) {
      read.Fail(fmt::format("{} state-space heads do not share {} channels", shape.heads, inner));
    }
  }
  if (shape.channels() > kMaxWidth) read.Fail("the state-space layers are too wide");
  config->kernel = read.Small({"mamba_d_conv", "ssm.conv_kernel"}, 1, kMaxConvKernel);
  config->step_rank = std::max(64, config->decoder.hidden / 16);
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadPlamo2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  Plamo2Config config{.decoder = ReadDecoderConfig(read,
                                                   {.heads = -1,
                                                    .kv_heads = -1,
                                                    .head_dim = -1,
                                                    .context = 2048,
                                                    .norm = NormKind::kZeroCenteredRms,
                                                    .norm_eps = 1e-6F},
                                                   TiedByDefault::kYes)};
  DecoderConfig& decoder = config.decoder;
  if (decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  config.attends.resize(static_cast<size_t>(decoder.layers));
  config.windows.resize(config.attends.size());
  decoder.heads =
      ReadLayerHeads(read, {"num_attention_heads", "attention.head_count"}, decoder.layers, &config.attends);
  decoder.kv_heads = ReadLayerHeads(read, {"num_key_value_heads", "attention.head_count_kv"}, decoder.layers,
                                    &config.attends);
  decoder.head_dim =
      read.Small({"hidden_size_per_head", "attention.key_length"}, 1, kernels::kMaxHeadDim, 128);
  CheckHeads(read, decoder.heads, decoder.kv_heads, decoder.head_dim);
  if (!read.gguf()) {
    ReadKinds(read, &config);
    ReadWindowSizes(read, &config);
  }
  ReadStateSpace(read, &config);
  config.feed_forward = ReadFeedForward(read);
  config.rope = ReadRope(read, {.head_dim = decoder.head_dim, .default_theta = 10000});
  read.Ignore({"mamba_chunk_size", "linear_type", "fp8_accum_dtype", "eval_attention_n_bit", "eval_mlp_n_bit",
               "use_predefined_initial_state"});
  return BuildModel<Plamo2>(read, std::move(files), config);
}

}  // namespace quire::runner::models
