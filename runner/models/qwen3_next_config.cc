#include "runner/models/qwen3_next_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/kernels/portable_math.h"

namespace quire::runner::models {
namespace {

constexpr int32_t kMaxStateDim = 1024;
constexpr ExpertNames kExpertNames = {.gate = "mlp.experts.{}.gate_proj",
                                      .up = "mlp.experts.{}.up_proj",
                                      .down = "mlp.experts.{}.down_proj",
                                      .gate_up_stacked = "mlp.experts.gate_up_proj",
                                      .down_stacked = "mlp.experts.down_proj"};

// GGUF files count `predicting` more layers, which attend.
std::vector<bool> ReadQwenLayerKinds(ConfigReader& read, int32_t layers, int32_t predicting) {
  const int32_t interval =
      read.Small({"full_attention_interval", "full_attention_interval"}, 1, kMaxLayers, 4);
  std::vector<bool> is_attention(static_cast<size_t>(layers));
  for (size_t i = 0; i < is_attention.size(); ++i) {
    is_attention[i] = (i + 1) % static_cast<size_t>(interval) == 0;
  }
  constexpr ConfigKey kTypes = {"layer_types", ""};
  // transformers writes one for the other.
  const auto* const types = read.Find(kTypes);
  const bool indexed =
      types != nullptr && types->is_array() && std::ranges::find(*types, "indexed_attention") != types->end();
  if (const auto listed =
          read.Kinds(kTypes, layers, indexed ? "indexed_attention" : "full_attention", "linear_attention")) {
    is_attention = *listed;
  }
  if (const auto recurrent = read.Booleans({"", "attention.recurrent_layers"}, layers + predicting)) {
    for (size_t i = 0; i < is_attention.size(); ++i) is_attention[i] = !(*recurrent)[i];
  }
  return is_attention;
}

kernels::GatedDeltaShape ReadDelta(ConfigReader& read) {
  kernels::GatedDeltaShape shape;
  shape.key_heads = read.Integer({"linear_num_key_heads", "ssm.group_count"}, 1, kMaxHeads);
  shape.value_heads = read.Integer({"linear_num_value_heads", "ssm.time_step_rank"}, 1, kMaxHeads);
  shape.key_dim = read.Integer({"linear_key_head_dim", "ssm.state_size"}, 1, kMaxStateDim);
  if (shape.value_heads % shape.key_heads != 0) {
    read.Fail(fmt::format("{} value heads cannot share {} key heads", shape.value_heads, shape.key_heads));
  }
  if (read.gguf()) {
    const int64_t values = read.Integer({"", "ssm.inner_size"}, 1, int64_t{kMaxHeads} * kMaxStateDim);
    if (values % shape.value_heads != 0 || values / shape.value_heads > kMaxStateDim) {
      read.Fail(fmt::format("the inner size {} is not {} heads of at most {}", values, shape.value_heads,
                            kMaxStateDim));
    }
    shape.value_dim = std::clamp<int64_t>(values / shape.value_heads, 1, kMaxStateDim);
  } else {
    shape.value_dim = read.Integer({"linear_value_head_dim", ""}, 1, kMaxStateDim);
  }
  if (shape.channels() > kMaxWidth)
    read.Fail(fmt::format("the delta net has too many channels: {}", shape.channels()));
  return shape;
}

// Layers whose number is in mlp_only_layers, and those between the sparse ones, stay dense.
void ReadQwenExperts(ConfigReader& read, Qwen3NextConfig* config) {
  config->experts = read.Small({"num_experts", "expert_count"}, 0, kMaxExperts, 0);
  const auto layers = static_cast<size_t>(config->decoder.layers);
  config->is_sparse.assign(layers, config->experts > 0);
  if (config->experts > 0) {
    config->experts_used = read.Small({"num_experts_per_tok", "expert_used_count"}, 1, config->experts);
    config->expert_feed_forward =
        read.Small({"moe_intermediate_size", "expert_feed_forward_length"}, 1, kMaxWidth);
    config->shared_feed_forward =
        read.Small({"shared_expert_intermediate_size", "expert_shared_feed_forward_length"}, 1, kMaxWidth);
    config->normalize = read.Boolean({"norm_topk_prob", "expert_weights_norm"}, true);
    const int32_t step = read.Small({"decoder_sparse_step", ""}, 1, kMaxLayers, 1);
    for (size_t i = 0; i < layers; ++i) config->is_sparse[i] = (i + 1) % static_cast<size_t>(step) == 0;
    if (const auto* dense = read.Find({"mlp_only_layers", ""}); dense != nullptr) {
      if (!dense->is_array()) return read.Fail("mlp_only_layers is not a list");
      for (const auto& entry : *dense) {
        const int64_t layer = ConfigReader::WholeNumber(entry).value_or(-1);
        if (layer < 0 || layer >= config->decoder.layers) {
          return read.Fail("mlp_only_layers must contain layer numbers");
        }
        config->is_sparse[static_cast<size_t>(layer)] = false;
      }
    }
  }
  if (std::ranges::count(config->is_sparse, false) != 0) config->feed_forward = ReadFeedForward(read);
}

}  // namespace

Qwen3NextConfig ReadQwen3NextConfig(ConfigReader& read) {
  const std::string architecture = read.files().architecture();
  Qwen3NextConfig config;
  config.decoder = ReadDecoderConfig(read, {.norm = NormKind::kZeroCenteredRms, .norm_eps = 1e-6F});
  config.mtp_layers = read.Small({"", "nextn_predict_layers"}, 0, config.decoder.layers - 1, 0);
  config.decoder.layers -= config.mtp_layers;
  const bool next = architecture == "qwen3_next" || architecture == "qwen3next";
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim,
                                .default_partial = 0.25,
                                .sections = next ? RopeSections::kNone : RopeSections::kInterleaved,
                                .given_sections = {11, 11, 10}});
  config.is_attention = ReadQwenLayerKinds(read, config.decoder.layers, config.mtp_layers);
  config.delta = ReadDelta(read);
  // GGUF files of Qwen3.5 tile the value heads over the key heads.
  config.delta.tiled = read.gguf() && architecture != "qwen3next";
  config.conv_kernel = read.Small({"linear_conv_kernel_dim", "ssm.conv_kernel"}, 2, kMaxConvKernel);
  config.grouped_projections = next;
  ReadQwenExperts(read, &config);
  read.Require("attn_output_gate", true);
  read.Require("attention_bias", false);
  // The state is float32, and prediction layers are what the checkpoint stores of them.
  read.Ignore({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
               "num_nextn_predict_layers"});
  if (config.experts == 0) {
    read.Ignore({"num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
                 "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"});
  } else {
    read.Ignore({"intermediate_size"});
  }
  return config;
}

GatedDeltaNet BindQwenDelta(const TensorScope& scope, const Qwen3NextConfig& config) {
  const kernels::GatedDeltaShape& shape = config.delta;
  const int64_t hidden = config.decoder.hidden, heads = shape.value_heads;
  GatedDeltaNet net;
  net.shape = shape;
  // Early files of llama.cpp keep the checkpoint's one matrix.
  const bool one_matrix = !scope.gguf() || scope.Has({"", "ssm_in.weight"});
  if (config.grouped_projections && one_matrix) {
    net.qkvz =
        scope.BindLinear({"linear_attn.in_proj_qkvz", "ssm_in"}, shape.channels() + shape.values(), hidden);
  } else {
    net.qkv = scope.BindLinear({"linear_attn.in_proj_qkv", "attn_qkv"}, shape.channels(), hidden);
    net.z = scope.BindLinear({"linear_attn.in_proj_z", "attn_gate"}, shape.values(), hidden);
  }
  if (config.grouped_projections) {
    net.ba = scope.BindLinear({"linear_attn.in_proj_ba", "ssm_ba"}, 2 * heads, hidden);
  } else {
    net.a = scope.BindLinear({"linear_attn.in_proj_a", "ssm_alpha"}, heads, hidden);
    net.b = scope.BindLinear({"linear_attn.in_proj_b", "ssm_beta"}, heads, hidden);
  }
  net.taps = scope.Taps({"linear_attn.conv1d", "ssm_conv1d"}, shape.channels(), config.conv_kernel);
  net.kernel = config.conv_kernel;
  net.rate = scope.Values({"linear_attn.A_log", "ssm_a"}, heads);  // ssm_a is -exp(A_log)
  if (!scope.gguf()) {
    for (float& rate : net.rate) rate = -kernels::Exp(rate);
  }
  net.time_bias = scope.Values({"linear_attn.dt_bias", "ssm_dt.bias"}, heads);
  // The one norm of the family that is not zero-centered.
  net.norm = {.weight = scope.Norm({"linear_attn.norm", "ssm_norm"}, shape.value_dim),
              .eps = config.decoder.norm_eps};
  net.out = scope.BindLinear({"linear_attn.out_proj", "ssm_out"}, hidden, shape.values());
  net.GrowWidths(scope.widths());
  return net;
}

MixtureOfExperts BindQwenExperts(const TensorScope& scope, const Qwen3NextConfig& config) {
  const int64_t experts = config.experts, hidden = config.decoder.hidden;
  MixtureOfExperts moe;
  moe.router = scope.BindLinear({"mlp.gate", "ffn_gate_inp"}, experts, hidden);
  moe.chosen = config.experts_used;
  moe.normalize = config.normalize;
  moe.activation = config.decoder.activation;
  BindExperts(scope, kExpertNames, experts, hidden, config.expert_feed_forward, &moe);
  RowWidths::Grow(scope.widths().shared, hidden);
  moe.shared_gate = scope.BindLinear({"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}, 1, hidden);
  return moe;
}

}  // namespace quire::runner::models
