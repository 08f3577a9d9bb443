#include <nlohmann/json.hpp>

#include "runner/models/decoder_config.h"
#include "runner/models/decoder_form.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {

// Warner et al. 2024: gated feed-forward layers, rotary positions, a window in two layers of three.
Encoding ReadModernBert(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  form.norm_eps = ReadEps(read, "norm_eps", "attention.layer_norm_epsilon", 1e-5);
  form.norms = EncoderNorms::kBefore;
  form.first_norm = false;
  form.norm_bias = ReadBias(read, "norm_bias");
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = form.down_bias = ReadBias(read, "mlp_bias");
  form.gated = true;
  form.activation = ReadEncoderActivation(read, "hidden_activation", "gelu");
  if (read.gguf() && read.Text({"", "hidden_activation"}, "gelu") != "gelu") {
    read.Fail("modern-bert.hidden_activation: only gelu is supported");
  }
  form.ropes.push_back(ReadRope(read, {.head_dim = form.head_dim,
                                       .layer_type = "full_attention",
                                       .theta = {"global_rope_theta", "rope.freq_base"},
                                       .default_theta = 160000}));
  form.ropes.push_back(ReadRope(read, {.head_dim = form.head_dim,
                                       .layer_type = "sliding_attention",
                                       .theta = {"local_rope_theta", "rope.freq_base_swa"},
                                       .default_theta = 10000,
                                       .scaled = false}));
  const int32_t window = read.Small({"local_attention", "attention.sliding_window"}, 0, kMaxContext, 128);
  constexpr ConfigKey kPattern = {"global_attn_every_n_layers", "attention.sliding_window_pattern"};
  const auto* pattern = read.Find(kPattern);
  const bool listed = read.gguf() && pattern != nullptr && pattern->is_array();
  const auto sliding = listed ? read.Booleans(kPattern, form.layers) : std::nullopt;
  const int32_t period = listed ? 1 : read.Small(kPattern, 1, kMaxLayers, 3);
  const auto typed = read.Kinds({"layer_types", ""}, form.layers, "sliding_attention", "full_attention");
  for (int32_t i = 0; i < form.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    bool slides = sliding ? (*sliding)[at] : i % period != 0;
    if (typed) slides = (*typed)[at];
    form.reach.push_back(slides ? window / 2 : -1);
    form.rope_of.push_back(slides ? 1 : 0);
  }
  read.Require("position_embedding_type", "absolute");
  read.Ignore({"tie_word_embeddings", "layer_norm_eps", "sparse_prediction", "sparse_pred_ignore_index",
               "decoder_bias", "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad",
               "cls_token_id", "sep_token_id", "global_attn_every_n_layers"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "model."}, "embeddings.tok_embeddings.weight");
  names.layers = "layers.";
  names.tokens = {"embeddings.tok_embeddings", "token_embd"};
  names.embedding_norm = {"embeddings.norm", "token_embd_norm"};
  names.final_norm = {"final_norm", "output_norm"};
  names.attention_norm = {"attn_norm", "attn_norm"};
  names.qkv = {"attn.Wqkv", "attn_qkv"};
  names.q = {"attn.Wq", "attn_q"};
  names.k = {"attn.Wk", "attn_k"};
  names.v = {"attn.Wv", "attn_v"};
  names.out = {"attn.Wo", "attn_output"};
  names.mlp_norm = {"mlp_norm", "ffn_norm"};
  names.gate_up = {"mlp.Wi", "ffn_up"};
  names.up = {"mlp.up", "ffn_up"};
  names.gate = {"mlp.gate", "ffn_gate"};
  names.down = {"mlp.Wo", "ffn_down"};
  made.score_dense = {"head.dense", "cls"};
  made.score_norm = {"head.norm", "cls.norm"};
  made.score_out = {"classifier", "cls.output"};
  made.score_dense_bias = ReadBias(read, "classifier_bias");
  const std::string pooling = read.Text({"classifier_pooling", ""}, "cls");
  if (pooling != "cls" && pooling != "mean") read.Fail("classifier_pooling: only cls and mean are supported");
  const int64_t stored = read.Integer({"", "classifier.pooling_type"}, 0, 4, 2);
  made.score_pooling = pooling == "mean" || stored == 1 ? EncoderPooling::kMean : EncoderPooling::kFirst;
  made.score_activation = ReadHeadActivation(
      read, read.Text({"classifier_activation", "classifier.activation"}, "gelu"), "classifier_activation");
  return made;
}

}  // namespace quire::runner::models
