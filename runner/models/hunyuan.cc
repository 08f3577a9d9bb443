#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// The number of a key that may have one per layer, all of them equal.
int32_t ReadUniform(ConfigReader& read, ConfigKey key, int32_t low, int32_t high,
                    std::optional<int64_t> fallback) {
  const auto numbers = read.Integers(key, read.Small({"num_hidden_layers", "block_count"}, 1, kMaxLayers),
                                     low, high, fallback);
  if (std::ranges::adjacent_find(numbers, std::not_equal_to<>()) != numbers.end()) {
    read.Fail(read.Name(key) + " is not the same in all layers");
  }
  return static_cast<int32_t>(numbers.front());
}

FormQuery HunyuanQuery(ConfigReader& read) {
  FormQuery query{.given = {.norm_eps = 1e-5F}};
  if (!read.gguf()) query.given.head_dim = read.Small({"attention_head_dim", ""}, 0, kMaxWidth, 0);
  return query;
}

// The text side of Hunyuan's models of images: positions of text are the same in all of a head's sections.
RopeQuery VisionTextRope(ConfigReader& read) {
  RopeQuery rope{.default_theta = 10000};
  constexpr ConfigKey kAlpha = {"", "rope.scaling.alpha"};
  read.Ignore({"vision_config", "rope_parameters/xdrope_section", "rope_scaling/xdrope_section"});
  if (read.Find(kAlpha) == nullptr) return rope;
  const double theta = read.Positive({"", "rope.freq_base"}, 1e15, 10000);
  const int32_t hidden = read.Small({"", "embedding_length"}, 1, kMaxWidth);
  const int32_t share = hidden / read.Small({"", "attention.head_count"}, 1, kMaxHeads);
  const double size = read.Small({"", "attention.key_length"}, 4, kernels::kMaxHeadDim, share);
  rope.base = theta * std::pow(read.Positive(kAlpha, 1e6), size / (size - 2));
  return rope;
}

// What dense and sparse models share.
void ReadHunyuan(ConfigReader& read, DecoderForm* form) {
  form->qk_norm = QkNorm::kRotatedHeads;
  form->names.attention.q_norm = {"self_attn.query_layernorm", "attn_q_norm"};
  form->names.attention.k_norm = {"self_attn.key_layernorm", "attn_k_norm"};
  form->attention_bias = form->out_bias = ReadBias(read, "attention_bias");
  form->mlp_bias = ReadBias(read, "mlp_bias");
  read.Require("use_qk_norm", true);
  read.Require("norm_type", "rms");
  read.Require("cla_share_factor", 2.0);  // of use_cla, which must be false
  // These belong to classification, training, other modalities and how many tokens the vocabulary had.
  read.Ignore({"class_num",
               "pool_type",
               "org_vocab_size",
               "add_classification_head",
               "moe_drop_tokens",
               "moe_random_routing_dropped_token",
               "dense_list",
               "mask_init_id",
               "sep_id",
               "eod_token_id",
               "im_start_id",
               "im_end_id",
               "im_newline_id",
               "text_start_id",
               "text_end_id",
               "image_token_id",
               "video_start_id",
               "video_end_id",
               "vit_type",
               "vit_path",
               "vit_patch",
               "vit_mapping_type",
               "vit_used_rms_norm",
               "vit_norm_type",
               "skip_cls_token",
               "num_media_embeds",
               "num_shared_expert"});
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadHunyuanDense(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  FormQuery query = HunyuanQuery(read);
  if (files->architecture().starts_with("hunyuan_vl")) query.rope = VisionTextRope(read);
  DecoderForm form = ReadDecoderForm(read, query);
  ReadHunyuan(read, &form);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadHunyuanMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // One shared expert of the width that intermediate_size says.
  const int32_t shared = ReadUniform(read, {"num_shared_expert", "expert_shared_count"}, 1, 1, 1);
  MixtureConfig sizes;
  sizes.chosen = ReadUniform(read, {"num_experts_per_tok|moe_topk", "expert_used_count"}, 1, kMaxExperts, 1);
  sizes.width = ReadUniform(read, {"moe_intermediate_size|intermediate_size", "expert_feed_forward_length"},
                            1, kMaxWidth, std::nullopt);
  DecoderForm form = ReadMixtureForm(read, HunyuanQuery(read), {.sizes = &sizes});
  ReadHunyuan(read, &form);
  MixtureConfig& mixture = form.mixture.config;
  mixture.shared_width =
      shared * read.Small({"intermediate_size", "expert_shared_feed_forward_length"}, 1, kMaxWidth);
  read.Require("use_mixed_mlp_moe", true);
  form.mixture.names.router = {"mlp.gate.wg", "ffn_gate_inp"};
  form.mixture.names.shared = {.gate = {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
                               .up = {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
                               .down = {"mlp.shared_mlp.down_proj", "ffn_down_shexp"}};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
