#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// Layer norms, also of the embedding, plain feed-forward layers, biases; ALiBi in place of positions.
api::Result<std::unique_ptr<Model>> LoadBloom(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t context = read.Small({"seq_length", ""}, 1, kMaxContext, 2048);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = context,
                                                      .norm = NormKind::kLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kGelu},
                                            .tied = TiedByDefault::kYes,
                                            .rope = {.default_theta = -1},
                                            .given_feed_forward = 4});
  read.Require("apply_residual_connection_post_layernorm", false);
  // How a program computes the same.
  read.Ignore({"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi",
               "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact"});
  form.alibi = 8;
  form.attention_bias = form.out_bias = form.mlp_bias = Bias::kPresent;
  form.names = {.layers = "h",
                .embedding = {"word_embeddings", "token_embd"},
                .embedding_norm = {"word_embeddings_layernorm", "token_embd_norm"},
                .attention = {.out = {"self_attention.dense", "attn_output"},
                              .qkv = {"self_attention.query_key_value", "attn_qkv"},
                              .grouped = true},
                .mlp = {.up = {"mlp.dense_h_to_4h", "ffn_up"}, .down = {"mlp.dense_4h_to_h", "ffn_down"}},
                .final_norm = {"ln_f", "output_norm"}};
  return BuildDeclared(read, std::move(files), form);
}

// Layer norms without biases, plain feed-forward layers; ALiBi in place of positions.
api::Result<std::unique_ptr<Model>> LoadMpt(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderConfig given{
      .norm = NormKind::kLayer, .norm_eps = 1e-5F, .plain_activation = PlainActivation::kGeluErf};
  if (!read.gguf()) {
    given.hidden = read.Small({"d_model", ""}, 1, kMaxWidth, 2048);
    given.heads = read.Small({"n_heads", ""}, 1, kMaxHeads, 16);
    given.layers = read.Small({"n_layers", ""}, 1, kMaxLayers, 24);
    given.context = read.Small({"max_seq_len", ""}, 1, kMaxContext, 2048);
  }
  DecoderForm form = ReadDecoderForm(
      read,
      {.given = given, .tied = TiedByDefault::kYes, .rope = {.default_theta = -1}, .given_feed_forward = 4});
  for (const char* key : {"attn_config/alibi", "no_bias"}) read.Require(key, true);
  for (const char* key : {"attn_config/prefix_lm", "attn_config/qk_ln"}) read.Require(key, false);
  read.Require("attn_config/attn_type", "multihead_attention");
  read.Require("attn_config/alibi_bias_max", 8.0);
  read.Require("expansion_ratio", 4.0);
  read.Ignore({"attn_config/attn_impl", "attn_config/attn_uses_sequence_id", "attn_config/attn_pdrop",
               "attn_config/model_type", "embedding_fraction", "init_device", "init_config",
               "learned_pos_emb", "norm_type", "verbose", "tokenizer_name"});
  constexpr ConfigKey kClip = {"attn_config/clip_qkv", "attention.clamp_kqv"};
  const auto* const clip = read.Find(kClip);
  if (clip != nullptr && *clip != 0) form.clip_qkv = static_cast<float>(read.Positive(kClip, 1e6));
  constexpr ConfigKey kScale = {"attn_config/softmax_scale", ""};
  if (read.Find(kScale) != nullptr) form.attention_scale = static_cast<float>(read.Positive(kScale, 1e3));
  form.alibi = static_cast<float>(read.Positive({"", "attention.max_alibi_bias"}, 1e3, 8));
  form.attention_bias = form.out_bias = form.mlp_bias = read.gguf() ? Bias::kIfStored : Bias::kAbsent;
  form.names = {.layers = "blocks",
                .embedding = {"wte", "token_embd"},
                .attention_norm = {"norm_1", "attn_norm"},
                .mlp_norm = {"norm_2", "ffn_norm"},
                .attention = {.out = {"attn.out_proj", "attn_output"}, .qkv = {"attn.Wqkv", "attn_qkv"}},
                .mlp = {.up = {"ffn.up_proj", "ffn_up"}, .down = {"ffn.down_proj", "ffn_down"}},
                .final_norm = {"norm_f", "output_norm"}};
  for (const char* tensor : {"position_embd.weight", "blk.0.attn_q_norm.weight"}) {
    if (files->Find(tensor) != nullptr) read.Fail(std::string("tensor ") + tensor + " is not supported");
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
