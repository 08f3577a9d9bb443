#include <string>

#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {
namespace {

constexpr float kJinaLargestBias = 8;

void NameJina(ConfigReader& read, EncoderForm& form) {
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "bert."}, "embeddings.word_embeddings.weight");
  names.layers = "encoder.layer.";
  names.tokens = {"embeddings.word_embeddings", "token_embd"};
  names.types = {"embeddings.token_type_embeddings", "token_types"};
  names.embedding_norm = {"embeddings.LayerNorm", "token_embd_norm"};
  names.q = {"attention.self.query", "attn_q"};
  names.k = {"attention.self.key", "attn_k"};
  names.v = {"attention.self.value", "attn_v"};
  names.qkv = {"", "attn_qkv"};
  names.q_norm = {"attention.self.layer_norm_q", "attn_q_norm"};
  names.k_norm = {"attention.self.layer_norm_k", "attn_k_norm"};
  names.out = {"attention.output.dense", "attn_output"};
  names.attention_norm = {"attention.output.LayerNorm", "attn_output_norm"};
  names.second_attention_norm = {"layer_norm_1", "attn_norm_2"};
  names.up = {"mlp.up_layer", "ffn_up"};
  names.gate = {"mlp.gated_layers_w", "ffn_gate"};
  names.down = {"mlp.wo", "ffn_down"};
  names.mlp_norm = {"mlp.layernorm", "layer_output_norm"};
}

}  // namespace

// jina-embeddings-v2 (Günther et al. 2023): BERT with ALiBi in both directions and GEGLU. Its model for code
// has norms of queries and keys, a second norm behind the attention, and the halves of its feed-forward
// layers the other way around.
Encoding ReadJinaBert(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  form.alibi = kJinaLargestBias;
  form.norm_eps = ReadEps(read, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-12);
  form.types = ReadTypes(read, 2);
  NameJina(read, form);
  EncoderNames& names = form.names;
  const auto stored = [&](const std::string& hugging_face, const std::string& gguf) {
    const std::string name = read.gguf() ? "blk.0." + gguf : names.prefix + "encoder.layer.0." + hugging_face;
    return read.files().Find(name + ".weight") != nullptr;
  };
  form.wide_qk_norm = stored("attention.self.layer_norm_q", "attn_q_norm");
  form.second_attention_norm = stored("layer_norm_1", "attn_norm_2");
  const std::string type = read.Text({"feed_forward_type", ""}, "geglu");
  form.gated = type != "original";
  form.activation = type == "reglu" ? EncoderActivation::kRelu : EncoderActivation::kGeluErf;
  if (type != "geglu" && type != "reglu") read.Fail("feed_forward_type: only geglu and reglu are supported");
  form.mlp_bias = read.gguf() ? Bias::kIfStored : Bias::kAbsent;
  form.down_bias = read.gguf() ? Bias::kIfStored : Bias::kPresent;
  if (form.second_attention_norm) {
    form.gate_first = false;
    // Programs that write such files do not agree about the order of the halves.
    if (read.gguf() && !stored("", "ffn_gate"))
      read.Fail("blk.0.ffn_up: a matrix of both halves is not supported");
    names.gate_up = {"mlp.up_gated_layer", "ffn_up"};
    names.down = {"mlp.down_layer", "ffn_down"};
    names.mlp_norm = {"layer_norm_2", "layer_output_norm"};
  } else {
    names.gate_up = {"mlp.gated_layers", "ffn_up"};
  }
  if (read.gguf() && stored("", "ffn_gate")) names.gate_up = {};
  read.Require("position_embedding_type", "alibi");
  read.Require("is_decoder", false);
  read.Require("add_cross_attention", false);
  read.Require("hidden_act", "gelu");
  read.Ignore({"tie_word_embeddings", "emb_pooler"});
  made.score_dense = {"bert.pooler.dense", "cls"};
  made.score_out = {"classifier", "cls.output"};
  return made;
}

// jina-embeddings-v3 (Sturua et al. 2024) without its adapters: XLM-RoBERTa with rotary positions.
Encoding ReadJinaV3(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  form.norm_eps = ReadEps(read, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5);
  form.activation = ReadEncoderActivation(read, "hidden_act", "gelu");
  form.types = ReadTypes(read, 1);
  form.ropes.push_back(
      ReadRope(read, {.head_dim = form.head_dim, .default_theta = read.gguf() ? 10000.0 : 20000.0}));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
  if (read.gguf()) form.attention_bias = form.out_bias = form.mlp_bias = form.down_bias = Bias::kIfStored;
  read.Ignore({"tie_word_embeddings"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "roberta."}, "embeddings.word_embeddings.weight");
  names.tokens = {"embeddings.word_embeddings", "token_embd"};
  names.types = {"embeddings.token_type_embeddings", "token_types"};
  UseUniformNames(names);
  names.up = {"mlp.fc1", "ffn_up"};
  names.down = {"mlp.fc2", "ffn_down"};
  if (!HasUniformNames(read)) {
    names.layers = "encoder.layers.";
    names.embedding_norm = {"emb_ln", "token_embd_norm"};
    names.qkv = {"mixer.Wqkv", "attn_qkv"};
    names.out = {"mixer.out_proj", "attn_output"};
    names.attention_norm = {"norm1", "attn_output_norm"};
    names.mlp_norm = {"norm2", "layer_output_norm"};
  }
  made.score_dense = {"classifier.dense", "cls"};
  made.score_out = {"classifier.out_proj", "cls.output"};
  return made;
}

}  // namespace quire::runner::models
