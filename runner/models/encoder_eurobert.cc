#include <string>

#include "runner/models/decoder_config.h"
#include "runner/models/decoder_form.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {

// EuroBERT (Boizard et al. 2025): the layers of Llama, whose tokens see both ways. Llama Embed and
// NeoBERT are the same in GGUF files whose rows are permuted; NeoBERT has gate and up in one matrix.
Encoding ReadEuroBert(ConfigReader& read) {
  const std::string architecture = read.files().architecture();
  const bool neo = architecture == "neo-bert", permuted = neo || architecture == "llama-embed";
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  ReadSharedHeads(read, form);
  form.norm = NormKind::kRms;
  form.norm_eps = ReadEps(read, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  form.norms = EncoderNorms::kBefore;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = form.down_bias = ReadBias(read, "mlp_bias");
  form.gated = true;
  form.activation = ReadEncoderActivation(read, "hidden_act", "silu");
  using kernels::RopePairs;
  form.ropes.push_back(ReadRope(read, {.head_dim = form.head_dim,
                                       .default_theta = 10000,
                                       .gguf_pairs = permuted ? RopePairs::kAdjacent : RopePairs::kHalves}));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
  read.Ignore({"tie_word_embeddings", "clf_pooling"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "model."}, "embed_tokens.weight");
  names.layers = "layers.";
  names.tokens = {"embed_tokens", "token_embd"};
  names.final_norm = {"norm", neo ? "enc.output_norm" : "output_norm"};
  names.attention_norm = {"input_layernorm", "attn_norm"};
  names.mlp_norm = {"post_attention_layernorm", "ffn_norm"};
  names.qkv = {"", "attn_qkv"};
  names.q = {"self_attn.q_proj", "attn_q"};
  names.k = {"self_attn.k_proj", "attn_k"};
  names.v = {"self_attn.v_proj", "attn_v"};
  names.out = {"self_attn.o_proj", "attn_output"};
  names.gate = {"mlp.gate_proj", "ffn_gate"};
  names.up = {"mlp.up_proj", "ffn_up"};
  names.down = {"mlp.down_proj", "ffn_down"};
  if (neo) names.gate_up = {"", "ffn_up"};
  made.score_dense = {"dense", "cls"};
  made.score_out = {"classifier", "cls.output"};
  made.score_activation = HeadActivation::kGelu;
  const std::string pooling = read.Text({"classifier_pooling", ""}, "late");
  if (pooling != "bos" && pooling != "mean" && pooling != "late") {
    read.Fail("classifier_pooling: only bos, mean and late are supported");
  }
  made.score_pooling = pooling == "bos" ? EncoderPooling::kFirst : EncoderPooling::kMean;
  made.score_late = pooling == "late";
  return made;
}

}  // namespace quire::runner::models
