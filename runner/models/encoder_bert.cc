#include "runner/kernels/key_value.h"
#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {

// Devlin et al. 2018; RoBERTa, XLM-RoBERTa (Conneau et al. 2019): positions begin behind the padding token's.
Encoding ReadBert(ConfigReader& read) {
  // Jina's BERT goes by the same name.
  if (read.Text({"position_embedding_type", ""}, "absolute") == "alibi") return ReadJinaBert(read);
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  const bool roberta = !read.gguf() && read.files().architecture() != "bert";
  form.norm_eps = ReadEps(read, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-12);
  form.activation = ReadEncoderActivation(read, "hidden_act", "gelu");
  form.position_rows = form.context;
  if (roberta) {
    form.position_offset = read.Small({"pad_token_id", ""}, 0, kMaxContext, 1) + 1;
    form.context -= form.position_offset;
    if (form.context < 1) read.Fail("max_position_embeddings leaves no position behind the padding token's");
  }
  form.types = ReadTypes(read, 2);
  read.Require("is_decoder", false);
  read.Require("add_cross_attention", false);
  read.Require("position_embedding_type", "absolute");
  read.Ignore({"tie_word_embeddings", "output_past", "directionality", "pooler_fc_size", "pooler_type",
               "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "bert.", "roberta."}, "embeddings.word_embeddings.weight");
  names.layers = "encoder.layer.";
  names.tokens = {"embeddings.word_embeddings", "token_embd"};
  names.types = {"embeddings.token_type_embeddings", "token_types"};
  names.positions = {"embeddings.position_embeddings", "position_embd"};
  names.embedding_norm = {"embeddings.LayerNorm", "token_embd_norm"};
  names.q = {"attention.self.query", "attn_q"};
  names.k = {"attention.self.key", "attn_k"};
  names.v = {"attention.self.value", "attn_v"};
  names.qkv = {"", "attn_qkv"};
  names.out = {"attention.output.dense", "attn_output"};
  names.attention_norm = {"attention.output.LayerNorm", "attn_output_norm"};
  names.up = {"intermediate.dense", "ffn_up"};
  names.down = {"output.dense", "ffn_down"};
  names.mlp_norm = {"output.LayerNorm", "layer_output_norm"};
  made.score_dense = {roberta ? "classifier.dense" : "bert.pooler.dense", "cls"};
  made.score_out = {roberta ? "classifier.out_proj" : "classifier", "cls.output"};
  return made;
}

}  // namespace quire::runner::models
