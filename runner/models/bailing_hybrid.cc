#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/models/families.h"
#include "runner/models/kimi_decoder.h"

namespace quire::runner::models {
namespace {

KimiNames BailingHybridNames() {
  KimiNames names{.embedding = {"word_embeddings", "token_embd"},
                  .q = {"attention.q_proj", "attn_q"},
                  .k = {"attention.k_proj", "attn_k"},
                  .v = {"attention.v_proj", "attn_v"},
                  .q_taps = {"attention.q_conv1d", "ssm_conv1d_q"},
                  .k_taps = {"attention.k_conv1d", "ssm_conv1d_k"},
                  .v_taps = {"attention.v_conv1d", "ssm_conv1d_v"},
                  .decay_down = {},
                  .decay_up = {"attention.f_proj", "ssm_f_a"},
                  .gate_down = {},
                  .gate_up = {"attention.g_proj", "ssm_g_a"},
                  .beta = {"attention.b_proj", "ssm_beta"},
                  .rate = {"attention.A_log", "ssm_a"},
                  .time_bias = {"attention.dt_bias", "ssm_dt.bias"},
                  .norm = {"attention.o_norm", "ssm_norm"},
                  .out = {"attention.dense", "attn_output"},
                  .latent = {.query_down = {"attention.q_a_proj", "attn_q_a"},
                             .query_norm = {"attention.q_a_layernorm", "attn_q_a_norm"},
                             .query_up = {"attention.q_b_proj", "attn_q_b"},
                             .query = {"attention.q_proj", "attn_q"},
                             .kv_down = {"attention.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                             .kv_norm = {"attention.kv_a_layernorm", "attn_kv_a_norm"},
                             .kv_up = {"attention.kv_b_proj", "attn_kv_b"},
                             .out = {"attention.dense", "attn_output"}},
                  .latent_gate = {"attention.g_proj", "attn_gate"},
                  .mixture = {}};
  names.mixture.choice_bias = {"mlp.gate.expert_bias", "exp_probs_b.bias"};
  return names;
}

// The last layer of each group attends, unless the layers are listed.
std::vector<bool> ReadBailingKinds(ConfigReader& read, int32_t layers, int32_t mtp_layers) {
  if (read.gguf()) {
    std::vector<bool> stored = ReadStoredKinds(read, layers + mtp_layers);
    stored.resize(static_cast<size_t>(layers));
    return stored;
  }
  const int32_t size = read.Small({"layer_group_size", ""}, 1, kMaxLayers, 6);
  if (auto listed = read.Kinds({"layer_types", ""}, layers, "full_attention", "linear_attention")) {
    return *listed;
  }
  std::vector<bool> attends(static_cast<size_t>(layers));
  for (int32_t i = 0; i < layers; ++i) attends[static_cast<size_t>(i)] = (i + 1) % size == 0;
  return attends;
}

void ReadBailingDelta(ConfigReader& read, KimiConfig* config) {
  constexpr int32_t kMaxDim = 1024;
  kernels::GatedDeltaShape& shape = config->delta;
  shape.by_channel = true;
  shape.key_heads = shape.value_heads = config->decoder.heads;
  read.Require("linear_num_heads", static_cast<double>(config->decoder.heads));
  // What transformers saves as head_dim is that of the rotation.
  shape.key_dim = shape.value_dim = read.Integer({"linear_head_dim|head_dim", "kda.head_dim"}, 1, kMaxDim);
  if (shape.channels() > kMaxWidth) read.Fail("the delta net has too many channels");
  config->kernel =
      read.Small({"linear_conv_kernel_dim|short_conv_kernel_size", "ssm.conv_kernel"}, 1, kMaxConvKernel, 4);
  config->low_rank = false;
  constexpr ConfigKey kBound = {"kda_lower_bound", "kda.gate_lower_bound"};
  if (!read.Boolean({"kda_safe_gate", "kda.safe_gate"}, true)) return read.Ignore({"kda_lower_bound"});
  const auto* const bound = read.Find(kBound);
  const double value = bound == nullptr && !read.gguf()         ? -5
                       : bound != nullptr && bound->is_number() ? bound->get<double>()
                                                                : 0;
  if (!(value < 0) || value < -1e6) return read.Fail(read.Name(kBound) + " is not a negative number");
  config->bound = static_cast<float>(value);
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadBailingHybrid(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t context = read.Small({"model_max_length", ""}, 1, kMaxContext, 262144);
  KimiConfig config{.decoder = ReadDecoderConfig(
                        read, {.kv_heads = -1, .head_dim = -1, .context = context, .norm_eps = 1e-6F})};
  DecoderConfig& decoder = config.decoder;
  // Whatever tie_word_embeddings says, a stored head is used.
  if (!read.gguf() && files->Find("lm_head.weight") != nullptr) decoder.tied = false;
  if (decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  const int32_t mtp_layers = read.Small({"num_nextn_predict_layers|num_mtp_layers", "nextn_predict_layers"},
                                        0, read.gguf() ? decoder.layers - 1 : kMaxLayers, 0);
  if (read.gguf()) decoder.layers -= mtp_layers;  // they are left out
  config.attends = ReadBailingKinds(read, decoder.layers, mtp_layers);
  ReadBailingDelta(read, &config);
  config.latent = ReadLatentAttention(read, decoder.heads);
  config.latent_gate = OutputGate::Kind::kSigmoid;
  config.rope = ReadRope(read, {.head_dim = config.latent.rotary,
                                .default_theta = 6e6,
                                .pairs = kernels::RopePairs::kAdjacent,
                                .gguf_pairs = kernels::RopePairs::kAdjacent});
  config.mixture = ReadMixture(read, decoder.layers,
                               {.score = MixtureConfig::Score::kSigmoid,
                                .scale = 2.5,
                                .first_dense = 2,
                                .shared = 1,
                                .groups = 8,
                                .groups_kept = 4});
  if (read.gguf()) {
    config.mixture.shared_width =
        read.Small({"", "expert_shared_feed_forward_length"}, 0, kMaxWidth, config.mixture.shared_width);
  }
  read.Require("moe_shared_expert_intermediate_size", static_cast<double>(config.mixture.width));
  read.Require("score_function", "sigmoid");
  for (const char* key : {"moe_router_enable_expert_bias", "no_kda_lora"}) read.Require(key, true);
  read.Require("gated_attention_proj_granularity_type", "head_wise");
  if (std::ranges::count(config.mixture.sparse, false) != 0) config.feed_forward = ReadFeedForward(read);
  // What follows from other keys, or is for training.
  read.Ignore(
      {"intermediate_size", "num_key_value_heads", "qk_head_dim", "head_dim", "mtp_loss_scaling_factor"});
  return BuildKimi(read, std::move(files), config, BailingHybridNames());
}

}  // namespace quire::runner::models
