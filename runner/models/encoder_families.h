// What the readers of the encoders' families share. A family's reader gives its form and says how its
// classification head is stored; formulas: the papers and published configurations named beside each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "runner/models/config_reader.h"
#include "runner/models/encoder.h"

namespace quire::runner::models {

struct Encoding {
  EncoderForm form;
  TensorName score_dense = {}, score_norm = {}, score_out = {};  // the complete names without ".weight"
  Bias score_dense_bias = Bias::kPresent, score_out_bias = Bias::kPresent;
  HeadActivation score_activation = HeadActivation::kTanh;
  EncoderPooling score_pooling = EncoderPooling::kFirst;
  bool score_late = false;  // ScoreHead::late
};

// The sizes that all families name alike, but for the names of a checkpoint.
struct SizeNames {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* feed_forward = "intermediate_size";
  const char* context = "max_position_embeddings";
};

EncoderForm ReadSizes(ConfigReader& read, const SizeNames& names = {});
// KV heads that several heads share, and a size of heads that is not hidden / heads.
void ReadSharedHeads(ConfigReader& read, EncoderForm& form);
float ReadEps(ConfigReader& read, const char* key, const char* gguf, double fallback);
// Rows of the table of token types; 0: there is none.
int32_t ReadTypes(ConfigReader& read, int64_t fallback);
EncoderActivation ReadEncoderActivation(ConfigReader& read, const char* key, const char* fallback);
EncoderActivation EncoderActivationOf(ConfigReader& read, const std::string& name, const char* key);
// The first of the prefixes with which the tensor is there.
std::string FindPrefix(ConfigReader& read, std::initializer_list<const char*> prefixes, const char* tensor);
// As transformers lays out encoders since version 5: "layers.3.self_attn.q_proj",
// "layers.3.post_mlp_layernorm".
bool HasUniformNames(ConfigReader& read);
void UseUniformNames(EncoderNames& names);

Encoding ReadBert(ConfigReader& read);
Encoding ReadDistilBert(ConfigReader& read);
Encoding ReadEmbeddingGemma(ConfigReader& read);
Encoding ReadEuroBert(ConfigReader& read);
Encoding ReadGte(ConfigReader& read);
Encoding ReadJinaBert(ConfigReader& read);
Encoding ReadJinaV3(ConfigReader& read);
Encoding ReadModernBert(ConfigReader& read);
Encoding ReadMpnet(ConfigReader& read);
Encoding ReadNomicBert(ConfigReader& read);

}  // namespace quire::runner::models
