#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {

// GTE of 2024 (Zhang et al. 2024, mGTE; also arctic-embed-m-v2): BERT with rotary positions and gated
// feed-forward layers whose first half is not the gate.
Encoding ReadGte(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  form.norm_eps = ReadEps(read, "layer_norm_eps", "", 1e-12);
  form.activation = ReadEncoderActivation(read, "hidden_act", "gelu");
  form.types = ReadTypes(read, 1);
  form.mlp_bias = Bias::kAbsent;
  form.gated = true;
  form.gate_first = false;
  form.ropes.push_back(
      ReadRope(read, {.head_dim = form.head_dim, .default_theta = 10000, .fixed_ntk = true}));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
  read.Require("position_embedding_type", "rope");
  read.Require("layer_norm_type", "layer_norm");
  read.Require("logn_attention_scale", false);
  read.Ignore({"pack_qkv", "logn_attention_clip1", "unpad_inputs", "use_memory_efficient_attention",
               "tie_word_embeddings", "classifier_dropout"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "new.", "gte."}, "embeddings.word_embeddings.weight");
  names.layers = "encoder.layer.";
  names.tokens = {"embeddings.word_embeddings", "token_embd"};
  names.types = {"embeddings.token_type_embeddings", "token_types"};
  names.embedding_norm = {"embeddings.LayerNorm", "token_embd_norm"};
  names.qkv = {"attention.qkv_proj", "attn_qkv"};
  names.q = {"attention.q_proj", "attn_q"};
  names.k = {"attention.k_proj", "attn_k"};
  names.v = {"attention.v_proj", "attn_v"};
  names.out = {"attention.o_proj", "attn_output"};
  names.attention_norm = {"attn_ln", "attn_output_norm"};
  names.gate_up = {"mlp.up_gate_proj", "ffn_up"};
  names.down = {"mlp.down_proj", "ffn_down"};
  names.mlp_norm = {"mlp_ln", "layer_output_norm"};
  made.score_dense = {names.prefix == "gte." ? "gte.pooler.dense" : "new.pooler.dense", "cls"};
  made.score_out = {"classifier", "cls.output"};
  return made;
}

}  // namespace quire::runner::models
