#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/families.h"
#include "runner/models/rwkv7_mixer.h"

namespace quire::runner::models {
namespace {

struct RwkvConfig {
  DecoderConfig decoder = {};
  kernels::RwkvShape shape = {};
  bool gated_mlp = false;  // ARWKV: the feed-forward layers of the model that it was made of
  int32_t feed_forward = 0;
  int64_t decay_rank = 0, rate_rank = 0, mix_rank = 0, gate_rank = 0;  // gate: 0 = none
  float least_length = 0, inside_length = 0;
  float head_norm_eps = 0;
};

// h += time mix(norm(h)); h += feed-forward(norm(h)).
struct RwkvBlock {
  Norm time_norm, feed_norm;
  RwkvTimeMix time;
  std::variant<RwkvChannelMix, GatedMlp> feed;
};

class Rwkv7 final : public Decoder {
 public:
  Rwkv7(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const RwkvConfig& config)
      : Decoder(std::move(files), config.decoder), config_(config) {
    BindEmbedding(bind, {"embeddings", "token_embd"});
    if (!config.gated_mlp) {
      embedding_norm_ = bind.gguf() ? BindLayerNorm(bind.Global(), {"", "token_embd_norm"})
                                    : BindLayerNorm(bind.Layer(0), {"pre_norm", ""});
    }
    for (int32_t i = 0; i < config.decoder.layers && !bind.error(); ++i) {
      blocks_.push_back(BindBlock(bind.Layer(static_cast<size_t>(i)), i));
    }
    BindHead(bind);
  }

 private:
  RwkvBlock BindBlock(const TensorScope& scope, int32_t layer) {
    const int64_t hidden = config_.decoder.hidden;
    RwkvBlock block;
    block.time_norm = BindLayerNorm(scope, {"attn_norm", "attn_norm"});
    block.feed_norm = BindLayerNorm(scope, {"ffn_norm", config_.gated_mlp ? "ffn_norm" : "attn_norm_2"});
    block.time = BindTimeMix(scope, layer);
    if (config_.gated_mlp) {
      block.feed = BindMlp(scope, config_.feed_forward);
    } else {
      RowWidths::Grow(scope.widths().ff, config_.feed_forward);
      block.feed = RwkvChannelMix{
          .lerp = scope.Elements({"ffn.x_k", "channel_mix_lerp_k.weight"}, hidden),
          .key = scope.BindLinear({"ffn.key", "channel_mix_key"}, config_.feed_forward, hidden),
          .value = scope.BindLinear({"ffn.value", "channel_mix_value"}, hidden, config_.feed_forward)};
    }
    return block;
  }

  RwkvTimeMix BindTimeMix(const TensorScope& scope, int32_t layer) {
    const int64_t hidden = config_.decoder.hidden;
    RwkvTimeMix mix;
    mix.shape = config_.shape;
    mix.shifts = config_.gated_mlp ? 1 : 2;
    BindLerps(scope, &mix);
    mix.receptance = scope.BindLinear({"attn.r_proj", "time_mix_receptance"}, hidden, hidden);
    mix.key = scope.BindLinear({"attn.k_proj", "time_mix_key"}, hidden, hidden);
    mix.value = scope.BindLinear({"attn.v_proj", "time_mix_value"}, hidden, hidden);
    mix.out = scope.BindLinear({"attn.o_proj", "time_mix_output"}, hidden, hidden);
    mix.decay = BindRwkvLowRank(scope, 'w', config_.decay_rank, true);
    mix.rate = BindRwkvLowRank(scope, 'a', config_.rate_rank, true);
    if (layer > 0) mix.mix = BindRwkvLowRank(scope, 'v', config_.mix_rank, true);
    if (config_.gate_rank > 0) mix.gate = BindRwkvLowRank(scope, 'g', config_.gate_rank, false);
    mix.removal = scope.Elements({"attn.k_k", "time_mix_k_k.weight"}, hidden);
    mix.key_rate = scope.Elements({"attn.k_a", "time_mix_k_a.weight"}, hidden);
    mix.bonus = scope.gguf() ? scope.Elements({"", "time_mix_r_k.weight"}, hidden)
                             : scope.Table({"attn.r_k", ""}, config_.shape.heads, config_.shape.head_dim);
    mix.least_length = config_.least_length;
    mix.inside_length = config_.inside_length;
    constexpr TensorName kHeadNorm = {"attn.g_norm", "time_mix_ln"};
    if (!config_.gated_mlp || scope.HasWeight(kHeadNorm)) {
      mix.norm_weight = scope.Norm(kHeadNorm, hidden);
      mix.norm_bias = scope.BiasOf(kHeadNorm, hidden, Bias::kPresent);
      mix.norm_eps = config_.head_norm_eps;
    }
    mix.GrowWidths(scope.widths());
    mix.recurrent_layer = AddStateSpace(mix.state(), layer);
    return mix;
  }

  // Binds those of r, w, k, v, a and g: in one tensor, or each in its own.
  void BindLerps(const TensorScope& scope, RwkvTimeMix* mix) const {
    const int64_t hidden = config_.decoder.hidden;
    const int64_t count = config_.gate_rank > 0 ? RwkvTimeMix::kLerps : RwkvTimeMix::kG;
    constexpr TensorName kFused = {"attn.x_x", "time_mix_lerp_fused.weight"};
    if (scope.gguf() || scope.Has(kFused)) {
      const std::vector<float> all = scope.Table(kFused, count, hidden);
      for (size_t i = 0; !all.empty() && i < static_cast<size_t>(count); ++i) {
        const auto begin = all.begin() + static_cast<ptrdiff_t>(i) * hidden;
        mix->lerp[i].assign(begin, begin + hidden);
      }
      return;
    }
    constexpr std::string_view kNames[] = {"attn.x_r", "attn.x_w", "attn.x_k",
                                           "attn.x_v", "attn.x_a", "attn.x_g"};
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      mix->lerp[i] = scope.Elements({kNames[i], ""}, hidden);
    }
  }

  RwkvLowRank BindRwkvLowRank(const TensorScope& scope, char part, int64_t rank, bool biased) const {
    const int64_t hidden = config_.decoder.hidden;
    const auto name = [&](const char* at) {
      return scope.gguf() ? fmt::format("time_mix_{}{}", part, at)
                          : fmt::format("attn.{}_lora.lora.{}", part, at);
    };
    const std::string down = name(scope.gguf() ? "1" : "0"), up = name("2");
    RwkvLowRank low;
    low.down = scope.BindLinear({down, down}, rank, hidden);
    const bool stored_beside = biased && !scope.gguf();
    low.up = scope.BindLinear({up, up}, hidden, rank, stored_beside ? Bias::kPresent : Bias::kAbsent);
    // The bias is added by the kernel of the gate behind it.
    low.bias = std::exchange(low.up.bias, {});
    if (biased && scope.gguf()) low.bias = scope.Elements({"", name("0") + ".weight"}, hidden);
    return low;
  }

  void PrepareForward(ForwardContext&, std::span<const float>) override {}

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const RwkvBlock& block = blocks_[layer];
    if (layer == 0 && embedding_norm_) embedding_norm_.Run(ctx.pool, h, h);
    const auto size = static_cast<int64_t>(h.size());
    const std::span<float> normed = ctx.work.normed.Get(size), mixed = ctx.work.mixed.Get(size);
    block.time_norm.Run(ctx.pool, h, normed);
    block.time.Run(ctx, normed, mixed);
    kernels::Add(ctx.pool, mixed, h);
    block.feed_norm.Run(ctx.pool, h, normed);
    if (const auto* channels = std::get_if<RwkvChannelMix>(&block.feed)) {
      channels->Run(ctx, block.time.At(ctx), normed, mixed);
    } else {
      std::get<GatedMlp>(block.feed).Run(ctx, normed, mixed);
    }
    kernels::Add(ctx.pool, mixed, h);
  }

  void ReplayLayer(size_t layer, std::byte* slot, std::span<const std::byte> inputs, int32_t tokens,
                   ThreadPool& pool) override {
    blocks_[layer].time.Replay(layout(), pool, slot, inputs, tokens);
  }

  const RwkvConfig config_;
  Norm embedding_norm_;
  std::vector<RwkvBlock> blocks_;
};

// A configuration may leave the ranks to the tensors.
int64_t ReadRank(ConfigReader& read, ConfigKey key, const char* tensor) {
  const weights::Tensor* stored = read.gguf() ? nullptr : read.files().Find(tensor);
  std::optional<int64_t> fallback;
  if (stored != nullptr) fallback = std::clamp<int64_t>(stored->rows(), 1, kMaxWidth);
  return read.Integer(key, 1, kMaxWidth, fallback);
}

void ReadRanks(ConfigReader& read, RwkvConfig* config) {
  config->decay_rank = ReadRank(read, {"decay_low_rank_dim", "attention.decay_lora_rank"},
                                "model.layers.0.attn.w_lora.lora.0.weight");
  config->rate_rank = ReadRank(read, {"a_low_rank_dim", "attention.iclr_lora_rank"},
                               "model.layers.0.attn.a_lora.lora.0.weight");
  if (config->decoder.layers > 1) {
    config->mix_rank = ReadRank(read, {"v_low_rank_dim", "attention.value_residual_mix_lora_rank"},
                                "model.layers.1.attn.v_lora.lora.0.weight");
  }
  constexpr ConfigKey kGate = {"gate_low_rank_dim", "attention.gate_lora_rank"};
  config->gate_rank = config->gated_mlp ? read.Integer(kGate, 0, kMaxWidth, 0)
                                        : ReadRank(read, kGate, "model.layers.0.attn.g_lora.lora.0.weight");
}

// What only checkpoints of flash-linear-attention have.
void CheckRwkvKeys(ConfigReader& read, const RwkvConfig& config) {
  if (const auto* attends = read.Find({"attn", ""}); attends != nullptr && !attends->empty()) {
    read.Fail("attn: layers with attention are not supported");
  }
  read.Require("norm_first", true);
  const auto* widths = read.Find({"value_dim", ""});
  if (widths != nullptr) {
    const auto same = [&](const auto& width) { return width == config.decoder.hidden; };
    if (widths->is_array() ? !std::ranges::all_of(*widths, same) : !same(*widths)) {
      read.Fail("value_dim: only the hidden size is supported");
    }
  }
  read.Ignore({"attn_mode", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp", "norm_bias",
               "num_heads", "hidden_ratio", "v_low_rank_dim"});
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadRwkv7(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  RwkvConfig config;
  config.gated_mlp = files->architecture() == "arwkv7";
  DecoderConfig given{.heads = -1, .kv_heads = -1, .head_dim = -1, .context = 1 << 20, .norm_eps = 1e-5F};
  if (!config.gated_mlp) {
    given.norm = NormKind::kLayer;
    given.plain_activation = PlainActivation::kSquaredRelu;
  }
  config.decoder = ReadDecoderConfig(read, given);
  const int32_t hidden = config.decoder.hidden;
  if (!config.gated_mlp && config.decoder.plain_activation != PlainActivation::kSquaredRelu) {
    read.Fail("hidden_act: only sqrelu is supported");
  }
  std::optional<int64_t> shared;
  if (read.Find({"num_heads", ""}) != nullptr) shared = hidden / read.Integer({"num_heads", ""}, 1, hidden);
  config.shape.head_dim = read.Integer({"head_dim", "wkv.head_size"}, 1, 1024, shared);
  config.shape.heads = hidden / config.shape.head_dim;
  if (hidden % config.shape.head_dim != 0) {
    read.Fail(fmt::format("{} channels are not whole heads of {}", hidden, config.shape.head_dim));
  }
  const int64_t shifts = config.gated_mlp ? 1 : 2;
  if (read.Integer({"", "token_shift_count"}, 0, 1 << 20, 2) != shifts && read.gguf()) {
    read.Fail(fmt::format("token_shift_count: only {} is supported for this architecture", shifts));
  }
  ReadRanks(read, &config);
  const double ratio = read.Positive({"hidden_ratio", ""}, 64, 4);
  const auto derived = static_cast<int64_t>(hidden * ratio + 31) / 32 * 32;
  config.feed_forward = read.Small({"intermediate_size", "feed_forward_length"}, 1, kMaxWidth,
                                   std::min<int64_t>(derived, kMaxWidth));
  // Fused kernels of flash-linear-attention scale keys by 1 / sqrt(sum of squares + 1e-6).
  config.least_length = 1e-12F;
  if (!read.gguf() && read.Boolean({"fuse_norm", ""}, true)) config.inside_length = 1e-6F;
  config.head_norm_eps =
      read.gguf() ? 64e-5F : static_cast<float>(config.shape.head_dim) * config.decoder.norm_eps;
  CheckRwkvKeys(read, config);
  return BuildModel<Rwkv7>(read, std::move(files), config);
}

}  // namespace quire::runner::models
