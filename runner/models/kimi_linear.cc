#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/models/families.h"
#include "runner/models/kimi_decoder.h"

namespace quire::runner::models {
namespace {

KimiNames KimiLinearNames() {
  KimiNames names{.embedding = {"embed_tokens", "token_embd"},
                  .q = {"self_attn.q_proj", "attn_q"},
                  .k = {"self_attn.k_proj", "attn_k"},
                  .v = {"self_attn.v_proj", "attn_v"},
                  .q_taps = {"self_attn.q_conv1d", "ssm_conv1d_q"},
                  .k_taps = {"self_attn.k_conv1d", "ssm_conv1d_k"},
                  .v_taps = {"self_attn.v_conv1d", "ssm_conv1d_v"},
                  .decay_down = {"self_attn.f_a_proj", "ssm_f_a"},
                  .decay_up = {"self_attn.f_b_proj", "ssm_f_b"},
                  .gate_down = {"self_attn.g_a_proj", "ssm_g_a"},
                  .gate_up = {"self_attn.g_b_proj", "ssm_g_b"},
                  .beta = {"self_attn.b_proj", "ssm_beta"},
                  .rate = {"self_attn.A_log", "ssm_a"},
                  .time_bias = {"self_attn.dt_bias", "ssm_dt.bias"},
                  .norm = {"self_attn.o_norm", "ssm_norm"},
                  .out = {"self_attn.o_proj", "attn_output"},
                  .latent = {},
                  .latent_gate = {},
                  .mixture = {}};
  names.mixture.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
  names.mixture.choice_bias = {"block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"};
  names.mixture.experts = {.gate = "block_sparse_moe.experts.{}.w1",
                           .up = "block_sparse_moe.experts.{}.w3",
                           .down = "block_sparse_moe.experts.{}.w2",
                           .gate_up_stacked = {},
                           .down_stacked = {}};
  names.mixture.shared = {.gate = {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
                          .up = {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
                          .down = {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"}};
  return names;
}

// Lists of layers, counted from 1, that together name each layer once.
std::vector<bool> ReadKimiKinds(ConfigReader& read, int32_t layers) {
  if (read.gguf()) return ReadStoredKinds(read, layers);
  std::vector<bool> attends(static_cast<size_t>(layers));
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
  config.rates_negated = true;
  return BuildKimi(read, std::move(files), config, KimiLinearNames());
}

}  // namespace quire::runner::models
