#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {
namespace {

constexpr ConfigKey kPattern = {"hybrid_override_pattern", ""};
constexpr ConfigKey kKinds = {"layers_block_type|layer_types", ""};

// A layer has one part.
HybridLayer LayerOfKind(ConfigReader& read, const std::string& kind) {
  using Feed = HybridLayer::Feed;
  if (kind == "M" || kind == "mamba") return {.mamba = true};
  if (kind == "*" || kind == "attention") return {.attends = true};
  if (kind == "-" || kind == "mlp") return {.feed = Feed::kMlp};
  if (kind == "E" || kind == "moe") return {.feed = Feed::kExperts};
  read.Fail(fmt::format("\"{}\" is not a kind of layer", kind.substr(0, 40)));
  return {};
}

void ReadNemotronKinds(ConfigReader& read, HybridForm* form) {
  const auto kinds = read.Texts(kKinds, form->decoder.layers);
  const std::string pattern = read.Text(kPattern, "");
  if (!kinds && pattern.size() != form->layers.size()) {
    return read.Fail("hybrid_override_pattern does not have one character per layer");
  }
  for (size_t i = 0; i < form->layers.size(); ++i) {
    form->layers[i] = LayerOfKind(read, kinds ? (*kinds)[i] : std::string(1, pattern[i]));
  }
}

// A GGUF file has KV heads and feed-forward widths per layer; a layer with neither is a state space.
void ReadNemotronGgufKinds(ConfigReader& read, HybridForm* form) {
  constexpr ConfigKey kWidths = {"", "feed_forward_length"};
  const std::vector<int64_t> widths = read.Integers(kWidths, form->decoder.layers, 0, kMaxWidth);
  for (size_t i = 0; i < form->layers.size(); ++i) {
    HybridLayer& layer = form->layers[i];
    const bool experts = read.files().Find(fmt::format("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
    if (widths[i] > 0 || experts) {
      layer.feed = experts ? HybridLayer::Feed::kExperts : HybridLayer::Feed::kMlp;
      if (layer.attends) read.Fail(fmt::format("layer {} has attention and a feed-forward layer", i));
    }
    layer.mamba = !layer.attends && layer.feed == HybridLayer::Feed::kNone;
    if (layer.feed != HybridLayer::Feed::kMlp) continue;
    if (form->feed_forward != 0 && form->feed_forward != widths[i]) {
      read.Fail(fmt::format("{}: layers differ in their widths", read.Name(kWidths)));
    }
    form->feed_forward = static_cast<int32_t>(widths[i]);
  }
}

void ReadNemotronExperts(ConfigReader& read, HybridForm* form) {
  MixtureConfig& mixture = form->mixture.config;
  mixture = ReadMixture(read, form->decoder.layers,
                        {.score = MixtureConfig::Score::kSigmoid, .normalize = true, .shared = 1});
  // A checkpoint has shared experts whatever n_shared_experts says.
  const auto none = read.gguf() ? std::optional<int64_t>(0) : std::nullopt;
  mixture.shared_width = read.Small(
      {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"}, 0, kMaxWidth, none);
  mixture.choice_bias = true;
  MixtureNames& names = form->mixture.names;
  names.router = {"mixer.gate", "ffn_gate_inp"};
  names.choice_bias = {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"};
  names.shared = {.gate = {},
                  .up = {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
                  .down = {"mixer.shared_experts.down_proj", "ffn_down_shexp"}};
  names.experts = {.gate = {},
                   .up = "mixer.experts.{}.up_proj",
                   .down = "mixer.experts.{}.down_proj",
                   .gate_up_stacked = {},
                   .down_stacked = {},
                   .plain = true};
  form->latent = read.Small({"moe_latent_size", "moe_latent_size"}, 0, kMaxWidth, 0);
  read.Ignore({"moe_shared_expert_overlap"});
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadNemotronH(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const auto* kinds = read.Find(kKinds);
  const size_t count = kinds != nullptr ? kinds->size() : read.Text(kPattern, "").size();
  const auto listed = static_cast<int32_t>(std::min<size_t>(count, kMaxLayers));
  HybridForm form = ReadHybridForm(read, {.given = {.layers = listed, .context = 4096}, .layer_eps = true});
  form.decoder.plain_activation = PlainActivation::kSquaredRelu;
  // transformers never ties the head, whatever tie_word_embeddings says.
  form.decoder.tied = files->Find(read.gguf() ? "output.weight" : "lm_head.weight") == nullptr;
  read.Require("mlp_hidden_act", "relu2");
  read.Require("mamba_hidden_act", "silu");
  read.Require("mamba_proj_bias", false);
  form.mamba = ReadMamba2(read,
                          {.heads = "mamba_num_heads",
                           .head_dim = "mamba_head_dim",
                           .groups = "n_groups|mamba_n_groups",
                           .state = "ssm_state_size",
                           .kernel = "conv_kernel|mamba_d_conv",
                           .in_bias = "use_bias",
                           .conv_bias = "use_conv_bias|mamba_conv_bias",
                           .out_bias = "use_bias"},
                          form.decoder.hidden);
  form.mamba.norm_groups = static_cast<int32_t>(form.mamba.shape.groups);
  // The published kernels apply limits, transformers without them does not.
  if (form.mamba.step_low > 0 || std::isfinite(form.mamba.step_high)) {
    read.Fail("time_step_limit: only no limit is supported for this family");
  }
  if (read.gguf()) {
    ReadNemotronGgufKinds(read, &form);
  } else {
    ReadNemotronKinds(read, &form);
  }
  const auto has = [&](HybridLayer::Feed feed) {
    return std::ranges::count(form.layers, feed, &HybridLayer::feed) > 0;
  };
  if (has(HybridLayer::Feed::kExperts)) ReadNemotronExperts(read, &form);
  if (has(HybridLayer::Feed::kMlp) && !read.gguf()) form.feed_forward = ReadFeedForward(read);
  // Early checkpoints have biases of the attention where attention_bias says so, transformers has none.
  form.attention_bias = form.attention_out_bias = Bias::kIfStored;
  form.mlp_bias = ReadBias(read, "mlp_bias");
  // Its GGUF files have permuted rows of queries and keys though nothing is rotated: a rotation by no angle
  // puts them in order.
  if (read.gguf()) {
    form.rope = RopeSpec{.frequencies = std::vector<float>(static_cast<size_t>(form.decoder.head_dim / 2)),
                         .pairs = kernels::RopePairs::kAdjacent};
  }
  // Attention has no positions. The inner size is that of the heads. MTP layers are not used.
  read.Ignore({"attention_bias", "rope_theta", "rope_parameters", "partial_rotary_factor", "expand",
               "intermediate_size", "num_nextn_predict_layers", "mtp_hybrid_override_pattern",
               "mtp_layers_block_type"});
  if (!has(HybridLayer::Feed::kExperts)) {
    read.Ignore({"moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_routed_experts",
                 "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group", "norm_topk_prob",
                 "routed_scaling_factor", "moe_shared_expert_overlap", "moe_latent_size"});
  }
  form.names = {
      .embedding = {"embeddings", "token_embd"},
      .final_norm = {"norm_f", "output_norm"},
      .mixer_norm = {"norm", "attn_norm"},
      .feed_norm = {"norm", "attn_norm"},
      .mamba = "mixer",
      .attention = {.q = {"mixer.q_proj", "attn_q"},
                    .k = {"mixer.k_proj", "attn_k"},
                    .v = {"mixer.v_proj", "attn_v"},
                    .out = {"mixer.o_proj", "attn_output"}},
      .mlp = {.gate = {}, .up = {"mixer.up_proj", "ffn_up"}, .down = {"mixer.down_proj", "ffn_down"}}};
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
