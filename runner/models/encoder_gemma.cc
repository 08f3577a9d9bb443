#include <cmath>

#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {

// Gemma 3 whose tokens see both ways.
Encoding ReadEmbeddingGemma(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  ReadSharedHeads(read, form);
  form.norm = NormKind::kZeroCenteredRms;
  form.norm_eps = ReadEps(read, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6);
  form.norms = EncoderNorms::kAround;
  form.attention_bias = form.out_bias =
      read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  form.mlp_bias = form.down_bias = Bias::kAbsent;
  form.gated = true;
  form.activation = ReadEncoderActivation(read, "hidden_activation", "gelu_pytorch_tanh");
  if (read.gguf()) form.activation = EncoderActivation::kGeluTanh;
  form.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(form.hidden)));
  form.qk_norm = true;
  const double scalar =
      read.Positive({"query_pre_attn_scalar", ""}, kMaxWidth, read.gguf() ? form.head_dim : 256);
  form.scale = static_cast<float>(1 / std::sqrt(scalar));
  form.ropes.push_back(
      ReadRope(read, {.head_dim = form.head_dim, .layer_type = "full_attention", .default_theta = 1e6}));
  form.ropes.push_back(ReadRope(read, {.head_dim = form.head_dim,
                                       .layer_type = "sliding_attention",
                                       .theta = {"rope_local_base_freq", "rope.freq_base_swa"},
                                       .default_theta = 10000,
                                       .scaled = false}));
  const int32_t period = read.Small({"sliding_window_pattern|_sliding_window_pattern", ""}, 1, kMaxLayers, 6);
  const std::vector<int32_t> windows = ReadWindows(
      read, form.layers, [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; }, period, 512);
  for (const int32_t window : windows) {
    form.reach.push_back(window > 0 ? window / 2 : -1);
    form.rope_of.push_back(window > 0 ? 1 : 0);
  }
  read.Require("use_bidirectional_attention", true);
  read.Ignore({"tie_word_embeddings"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "model."}, "embed_tokens.weight");
  names.layers = "layers.";
  names.tokens = {"embed_tokens", "token_embd"};
  names.final_norm = {"norm", "output_norm"};
  names.attention_norm = {"input_layernorm", "attn_norm"};
  names.post_attention_norm = {"post_attention_layernorm", "post_attention_norm"};
  names.mlp_norm = {"pre_feedforward_layernorm", "ffn_norm"};
  names.post_mlp_norm = {"post_feedforward_layernorm", "post_ffw_norm"};
  names.q = {"self_attn.q_proj", "attn_q"};
  names.k = {"self_attn.k_proj", "attn_k"};
  names.v = {"self_attn.v_proj", "attn_v"};
  names.out = {"self_attn.o_proj", "attn_output"};
  names.q_norm = {"self_attn.q_norm", "attn_q_norm"};
  names.k_norm = {"self_attn.k_norm", "attn_k_norm"};
  names.gate = {"mlp.gate_proj", "ffn_gate"};
  names.up = {"mlp.up_proj", "ffn_up"};
  names.down = {"mlp.down_proj", "ffn_down"};
  return made;
}

}  // namespace quire::runner::models
