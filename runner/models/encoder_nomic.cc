#include <algorithm>

#include "runner/models/decoder_config.h"
#include "runner/models/decoder_form.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {
namespace {

// Feed-forward layers: SwiGLU, or plain ones of which every second one may have experts.
void ReadNomicMlp(ConfigReader& read, EncoderForm& form) {
  form.mlp_bias = ReadBias(read, "mlp_fc1_bias");
  form.down_bias = ReadBias(read, "mlp_fc2_bias");
  const int32_t period = read.Small({"moe_every_n_layers", "moe_every_n_layers"}, 0, form.layers, 0);
  if (period > 0) {
    form.experts.period = period;
    form.experts.experts = read.Small({"num_local_experts|num_experts", "expert_count"}, 1, 1024);
    form.experts.chosen = read.Small({"moe_top_k", "expert_used_count"}, 1, form.experts.experts);
    read.Require("moe_normalize_expert_weights", false);
    read.Require("expert_choice_router", false);
    read.Require("num_shared_experts", 0.0);
    read.Require("ffn_div", 1.0);
    read.Ignore({"moe_impl"});
  } else {
    // Said by checkpoints without experts too.
    read.Ignore({"moe_top_k", "num_experts", "num_local_experts", "moe_impl", "ffn_div",
                 "moe_normalize_expert_weights", "expert_choice_router", "num_shared_experts"});
  }
  if (read.gguf()) {
    form.gated = read.files().architecture() == "nomic-bert";
    form.activation = form.gated ? EncoderActivation::kSilu : EncoderActivation::kGeluErf;
    return;
  }
  const bool published = read.Find({"activation_function", ""}) != nullptr;
  const std::string name = read.Text({"activation_function|hidden_act", ""}, "silu");
  const bool geglu = published && name == "geglu", swiglu = published && name == "swiglu";
  form.gated = !published || geglu || swiglu;
  form.activation = geglu    ? EncoderActivation::kGeluErf
                    : swiglu ? EncoderActivation::kSilu
                             : EncoderActivationOf(read, name, "activation_function");
}

void NameNomic(ConfigReader& read, EncoderForm& form) {
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "bert.", "nomic_bert."}, "embeddings.word_embeddings.weight");
  names.tokens = {"embeddings.word_embeddings", "token_embd"};
  names.types = {"embeddings.token_type_embeddings", "token_types"};
  names.layers = "encoder.layers.";
  names.embedding_norm = {"emb_ln", "token_embd_norm"};
  names.qkv = {"attn.Wqkv", "attn_qkv"};
  names.q = {"attn.Wq", "attn_q"};
  names.k = {"attn.Wk", "attn_k"};
  names.v = {"attn.Wv", "attn_v"};
  names.out = {"attn.out_proj", "attn_output"};
  names.attention_norm = {"norm1", "attn_output_norm"};
  names.up = {form.gated ? "mlp.fc11" : "mlp.fc1", "ffn_up"};
  names.gate = {"mlp.fc12", "ffn_gate"};
  names.down = {"mlp.fc2", "ffn_down"};
  names.mlp_norm = {"norm2", "layer_output_norm"};
  if (!HasUniformNames(read)) return;
  UseUniformNames(names);
  names.up = {"mlp.up_proj", "ffn_up"};
  names.gate = {"mlp.gate_proj", "ffn_gate"};
  names.down = {"mlp.down_proj", "ffn_down"};
}

}  // namespace

// nomic-embed-text (Nussbaum et al. 2024, 2025): BERT with rotary positions and SwiGLU or experts. The
// published code and transformers name keys and tensors each in their own way.
Encoding ReadNomicBert(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read, {.hidden = "n_embd|hidden_size",
                                                   .layers = "n_layer|num_hidden_layers",
                                                   .heads = "n_head|num_attention_heads",
                                                   .feed_forward = "n_inner|intermediate_size",
                                                   .context = "n_positions|max_position_embeddings"});
  form.head_dim = read.Small({"head_dim", "attention.key_length"}, 2, form.head_dim, form.head_dim);
  // Beyond these the published code stretches the angles, which is not implemented.
  const bool stretched = read.Find({"rotary_scaling_factor", ""}) != nullptr;
  const int64_t trained = stretched ? std::min(form.context, 2048) : form.context;
  form.context = std::min(form.context, read.Small({"max_trained_positions", ""}, 1, 1 << 20, trained));
  form.norm_eps = ReadEps(read, "layer_norm_epsilon|layer_norm_eps", "attention.layer_norm_epsilon", 1e-12);
  form.attention_bias = form.out_bias = ReadBias(read, "qkv_proj_bias");
  ReadNomicMlp(read, form);
  form.types = ReadTypes(read, 2);
  form.ropes.push_back(ReadRope(read, {.head_dim = form.head_dim,
                                       .theta = {"rotary_emb_base", "rope.freq_base"},
                                       .default_theta = read.gguf() ? 10000.0 : 1000.0}));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
  for (const char* key : {"prenorm", "parallel_block", "use_rms_norm", "rotary_emb_interleaved",
                          "scale_attn_by_inverse_layer_idx", "add_pooling_layer"}) {
    read.Require(key, false);
  }
  read.Require("rotary_emb_fraction", 1.0);
  read.Ignore({"tie_word_embeddings", "fused_bias_fc", "fused_dropout_add_ln", "use_xentropy",
               "dense_seq_output", "last_layer_subset", "pad_vocab_size_multiple", "reorder_and_upcast_attn",
               "scale_attn_weights", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
               "summary_type", "summary_use_proj", "matryoshka_dims"});
  NameNomic(read, form);
  return made;
}

}  // namespace quire::runner::models
