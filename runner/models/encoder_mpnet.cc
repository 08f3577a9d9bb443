#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {
namespace {

// Behind the padding token's, whatever id the configuration gives that.
constexpr int32_t kMpnetOffset = 2;

}  // namespace

// MPNet (Song et al. 2020): RoBERTa with biases of attention by distance, which all layers share.
Encoding ReadMpnet(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  form.norm_eps = ReadEps(read, "layer_norm_eps", "", 1e-12);
  form.activation = ReadEncoderActivation(read, "hidden_act", "gelu");
  form.position_rows = form.context;
  form.position_offset = kMpnetOffset;
  form.context -= kMpnetOffset;
  if (form.context < 1) read.Fail("max_position_embeddings leaves no position behind the padding token's");
  form.distance_bias = true;
  read.Require("relative_attention_num_buckets", 32.0);
  read.Ignore({"tie_word_embeddings"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "mpnet."}, "embeddings.word_embeddings.weight");
  names.layers = "encoder.layer.";
  names.tokens = {"embeddings.word_embeddings", ""};
  names.positions = {"embeddings.position_embeddings", ""};
  names.distance_bias = {"encoder.relative_attention_bias", ""};
  names.embedding_norm = {"embeddings.LayerNorm", "token_embd_norm"};
  names.q = {"attention.attn.q", ""};
  names.k = {"attention.attn.k", ""};
  names.v = {"attention.attn.v", ""};
  names.out = {"attention.attn.o", ""};
  names.attention_norm = {"attention.LayerNorm", ""};
  names.up = {"intermediate.dense", ""};
  names.down = {"output.dense", ""};
  names.mlp_norm = {"output.LayerNorm", ""};
  made.score_dense = {"classifier.dense", "cls"};
  made.score_out = {"classifier.out_proj", "cls.output"};
  return made;
}

// DistilBERT (Sanh et al. 2019): BERT without token types, under other names. GGUF files say "bert".
Encoding ReadDistilBert(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read, {.hidden = "dim|hidden_size",
                                                   .layers = "n_layers|num_hidden_layers",
                                                   .heads = "n_heads|num_attention_heads",
                                                   .feed_forward = "hidden_dim"});
  form.norm_eps = 1e-12F;
  form.activation = ReadEncoderActivation(read, "activation", "gelu");
  form.position_rows = form.context;
  // Sinusoidal positions are stored as learned ones are.
  read.Ignore({"sinusoidal_pos_embds", "tie_weights_", "tie_word_embeddings"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "distilbert."}, "embeddings.word_embeddings.weight");
  names.layers = "transformer.layer.";
  names.tokens = {"embeddings.word_embeddings", ""};
  names.positions = {"embeddings.position_embeddings", ""};
  names.embedding_norm = {"embeddings.LayerNorm", "token_embd_norm"};
  names.q = {"attention.q_lin", ""};
  names.k = {"attention.k_lin", ""};
  names.v = {"attention.v_lin", ""};
  names.out = {"attention.out_lin", ""};
  names.attention_norm = {"sa_layer_norm", ""};
  names.up = {"ffn.lin1", ""};
  names.down = {"ffn.lin2", ""};
  names.mlp_norm = {"output_layer_norm", ""};
  made.score_dense = {"pre_classifier", "cls"};
  made.score_activation = HeadActivation::kRelu;
  made.score_out = {"classifier", "cls.output"};
  return made;
}

}  // namespace quire::runner::models
