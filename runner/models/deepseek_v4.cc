#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/compressed_attention.h"
#include "runner/models/decoder.h"
#include "runner/models/deepseek_v4_config.h"
#include "runner/models/families.h"
#include "runner/models/mixture_config.h"
#include "runner/models/residual_streams.h"

namespace quire::runner::models {
namespace {

// h through attention(norm(h)); h through experts(norm(h)).
struct DeepSeekV4Block {
  HyperConnection attention_connection, experts_connection;
  Norm attention_norm, experts_norm;
  CompressedAttention attention;
  MixtureOfExperts experts;
};

class DeepSeekV4 final : public Decoder {
 public:
  DeepSeekV4(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind,
             const DeepSeekV4Config& config)
      : Decoder(std::move(files), config.decoder), config_(config) {
    streams_ = config.streams.streams;
    for (const RopeSpec& spec : config.ropes) {
      RopeSpec inverse = spec;
      for (float& frequency : inverse.frequencies) frequency = -frequency;
      ropes_.emplace_back(spec);
      inverses_.emplace_back(std::move(inverse));
    }
    BindEmbedding(bind, {"embed", "token_embd"});
    for (size_t i = 0; i < config.layers.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), i);
    end_ = BindConnection(bind.Global(), config.streams,
                          {.fn = {"hc_head_fn", "output_hc_fn.weight"},
                           .scale = {"hc_head_scale", "output_hc_scale.weight"},
                           .base = {"hc_head_base", "output_hc_base.weight"}},
                          /*writes=*/false);
    BindHead(bind, {"norm", "output_norm"}, {"head", "output"});
  }

 private:
  void BindBlock(const TensorScope& scope, size_t layer) {
    DeepSeekV4Block block;
    block.attention_connection = BindConnection(scope, config_.streams,
                                                {.fn = {"hc_attn_fn", "hc_attn_fn.weight"},
                                                 .scale = {"hc_attn_scale", "hc_attn_scale.weight"},
                                                 .base = {"hc_attn_base", "hc_attn_base.weight"}},
                                                /*writes=*/true);
    block.attention_norm = BindLayerNorm(scope, {"attn_norm", "attn_norm"});
    block.attention = BindCompressed(scope, config_.layers[layer]);
    block.experts_connection = BindConnection(scope, config_.streams,
                                              {.fn = {"hc_ffn_fn", "hc_ffn_fn.weight"},
                                               .scale = {"hc_ffn_scale", "hc_ffn_scale.weight"},
                                               .base = {"hc_ffn_base", "hc_ffn_base.weight"}},
                                              /*writes=*/true);
    block.experts_norm = BindLayerNorm(scope, {"ffn_norm", "ffn_norm"});
    block.experts = BindHashedExperts(scope, config_.layers[layer]);
    blocks_.push_back(std::move(block));
  }

  CompressedAttention BindCompressed(const TensorScope& scope, const DeepSeekV4Layer& layer) {
    const CompressedAttentionShape& shape = config_.attention;
    const int64_t hidden = config().hidden, heads = int64_t{shape.heads} * shape.head_dim;
    CompressedAttention attention;
    attention.shape = shape;
    attention.query_down = scope.BindLinear({"attn.wq_a", "attn_q_a"}, shape.query_rank, hidden);
    attention.query_norm = Plain(scope.Norm({"attn.q_norm", "attn_q_a_norm"}, shape.query_rank));
    attention.query = scope.BindLinear({"attn.wq_b", "attn_q_b"}, heads, shape.query_rank);
    attention.head_norm = Plain(std::vector<float>(static_cast<size_t>(shape.head_dim), 1.0F));
    attention.key = scope.BindLinear({"attn.wkv", "attn_kv"}, shape.head_dim, hidden);
    attention.key_norm = Plain(scope.Norm({"attn.kv_norm", "attn_kv_a_norm"}, shape.head_dim));
    attention.sinks = scope.Values({"attn.attn_sink", "attn_sinks.weight"}, shape.heads);
    const int64_t from = heads / shape.groups, made = int64_t{shape.groups} * shape.group_rank;
    const kernels::Matrix group_out = scope.Matrix({"attn.wo_a", "attn_output_a"}, made, from);
    for (int64_t g = 0; g < shape.groups && !scope.failed(); ++g) {
      attention.group_out.push_back(
          scope.InPanels(kernels::RowsOf(group_out, g * shape.group_rank, (g + 1) * shape.group_rank)));
    }
    attention.out = scope.BindLinear({"attn.wo_b", "attn_output_b"}, hidden, made);
    const size_t rope = layer.rate > 0 ? 1 : 0;
    attention.rotary = &ropes_[rope];
    attention.inverse = &inverses_[rope];
    const cache::AttentionGroup keys = {.kv_heads = 1, .head_dim = shape.head_dim, .latent = shape.head_dim};
    cache::AttentionGroup window = keys;
    window.window = shape.window;
    const auto number = static_cast<int32_t>(blocks_.size());
    attention.binding = AddAttention(window, attention.rotary, number);
    RowWidths& widths = scope.widths();
    widths.GrowAttention(heads, shape.head_dim, shape.head_dim, /*gated=*/false);
    RowWidths::Grow(widths.convolved, std::max<int64_t>(shape.query_rank, made));
    RowWidths::Grow(widths.projected, made);
    RowWidths::Grow(widths.z, heads);
    if (rope == 0) return attention;
    attention.compressor =
        BindCompressor(scope, {"attn.compressor.", "attn_compressor_"}, layer, shape.head_dim);
    cache::AttentionGroup blocks = keys;
    blocks.stride = layer.rate;
    attention.compressor->blocks = AddAttention(blocks, attention.rotary, number);
    if (layer.chooses) attention.chooser = BindChooser(scope, layer);
    return attention;
  }

  RmsNorm Plain(std::vector<float> weight) const {
    return {.weight = std::move(weight), .eps = config().norm_eps};
  }

  // All but `blocks`.
  Compressor BindCompressor(const TensorScope& scope, TensorName prefix, const DeepSeekV4Layer& layer,
                            int32_t dim) {
    const auto named = [](std::string_view start, std::string_view end) {
      return fmt::format("{}{}", start, end);
    };
    const std::string key = named(prefix.hugging_face, "wkv"), gguf_key = named(prefix.gguf, "kv"),
                      gate = named(prefix.hugging_face, "wgate"), gguf_gate = named(prefix.gguf, "gate"),
                      places = named(prefix.hugging_face, "ape"),
                      gguf_places = named(prefix.gguf, "ape.weight"),
                      norm = named(prefix.hugging_face, "norm"), gguf_norm = named(prefix.gguf, "norm");
    Compressor made{.dim = dim, .rate = layer.rate, .overlap = layer.chooses};
    const int64_t width = int64_t{made.series()} * dim, hidden = config().hidden;
    made.key = scope.BindLinear({key, gguf_key}, width, hidden);
    made.gate = scope.BindLinear({gate, gguf_gate}, width, hidden);
    made.places = scope.Table({places, gguf_places}, layer.rate, width);
    made.norm = Plain(scope.Norm({norm, gguf_norm}, dim));
    made.rotary = &ropes_[1];
    made.rotated = config_.attention.rotated;
    made.tokens = AddRows({.head_dim = made.row(), .window = made.window()}, nullptr);
    RowWidths::Grow(scope.widths().projected, made.row());
    RowWidths::Grow(scope.widths().convolved, made.row());
    return made;
  }

  BlockChooser BindChooser(const TensorScope& scope, const DeepSeekV4Layer& layer) {
    const int32_t heads = config_.index_heads, dim = config_.index_dim;
    BlockChooser chooser{
        .keys = BindCompressor(scope, {"attn.indexer.compressor.", "indexer_compressor_"}, layer, dim)};
    chooser.keys.blocks = AddRows({.head_dim = dim, .stride = layer.rate}, nullptr);
    chooser.query = scope.BindLinear({"attn.indexer.wq_b", "indexer.attn_q_b"}, int64_t{heads} * dim,
                                     config_.attention.query_rank);
    chooser.weights = scope.BindLinear({"attn.indexer.weights_proj", "indexer.proj"}, heads, config().hidden);
    chooser.heads = heads;
    chooser.rule = {.heads = heads,
                    .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
                    .best = config_.index_best};
    RowWidths::Grow(scope.widths().index, int64_t{heads} * (dim + 1));
    RowWidths::Grow(scope.widths().index_chosen, config_.index_best);
    return chooser;
  }

  MixtureOfExperts BindHashedExperts(const TensorScope& scope, const DeepSeekV4Layer& layer) const {
    MixtureNames names;
    names.router = {"ffn.gate", "ffn_gate_inp"};
    names.choice_bias = {"ffn.gate.bias", "exp_probs_b.bias"};
    names.experts = {.gate = "ffn.experts.{}.w1",
                     .up = "ffn.experts.{}.w3",
                     .down = "ffn.experts.{}.w2",
                     .gate_up_stacked = {},
                     .down_stacked = {}};
    const MlpNames shared = {.gate = {"ffn.shared_experts.w1", "ffn_gate_shexp"},
                             .up = {"ffn.shared_experts.w3", "ffn_up_shexp"},
                             .down = {"ffn.shared_experts.w2", "ffn_down_shexp"}};
    MixtureConfig mixture = config_.mixture;
    mixture.choice_bias = !layer.hashed;
    mixture.clamp = layer.clamp;
    MixtureOfExperts moe = BindMixture(scope, config().hidden, mixture, names);
    moe.activation = config().activation;
    if (layer.hashed) {
      moe.by_token = scope.Indices({"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"}, config().vocab,
                                   mixture.chosen, mixture.experts);
    }
    RowWidths::Grow(scope.widths().shared, config().hidden);
    moe.shared = BindMlp(scope, mixture.shared_width, shared);
    moe.shared.clamp = layer.shared_clamp;
    return moe;
  }

  size_t layers() const override { return blocks_.size(); }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override {
    for (RotaryEmbedding& rope : ropes_) rope.Prepare(ctx);
    for (RotaryEmbedding& rope : inverses_) rope.Prepare(ctx);
  }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const DeepSeekV4Block& block = blocks_[layer];
    RunThrough(ctx, block.attention_connection, block.attention_norm, h,
               [&](auto x, auto y) { block.attention.Run(ctx, x, y); });
    RunThrough(ctx, block.experts_connection, block.experts_norm, h,
               [&](auto x, auto y) { block.experts.Run(ctx, x, y); });
  }

  void JoinStreams(ForwardContext& ctx, std::span<const float> h, std::span<float> to) override {
    end_.Read(ctx, h, to);
  }

  const DeepSeekV4Config config_;
  // For layers that see their window only, and for the others. Layers point into these.
  std::vector<RotaryEmbedding> ropes_, inverses_;
  std::vector<DeepSeekV4Block> blocks_;
  HyperConnection end_;
};

}  // namespace

api::Result<std::unique_ptr<Model>> LoadDeepSeekV4(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const DeepSeekV4Config config = ReadDeepSeekV4Config(read);
  return BuildModel<DeepSeekV4>(read, std::move(files), config);
}

}  // namespace quire::runner::models
