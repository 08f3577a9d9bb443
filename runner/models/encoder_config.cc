#include <fmt/format.h>

#include <algorithm>

#include "runner/kernels/key_value.h"
#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"

namespace quire::runner::models {

std::string FindPrefix(ConfigReader& read, std::initializer_list<const char*> prefixes, const char* tensor) {
  if (read.gguf()) return "";
  for (const char* prefix : prefixes) {
    if (read.files().Find(fmt::format("{}{}", prefix, tensor)) != nullptr) return prefix;
  }
  return *prefixes.begin();
}

EncoderActivation EncoderActivationOf(ConfigReader& read, const std::string& name, const char* key) {
  if (name == "gelu" || name == "gelu_python") return EncoderActivation::kGeluErf;
  for (const char* tanh :
       {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"}) {
    if (name == tanh) return EncoderActivation::kGeluTanh;
  }
  if (name == "quick_gelu") return EncoderActivation::kGeluQuick;
  if (name == "relu") return EncoderActivation::kRelu;
  if (name == "silu" || name == "swish") return EncoderActivation::kSilu;
  read.Fail(fmt::format("{}: \"{}\" is not supported", key, name.substr(0, 60)));
  return EncoderActivation::kGeluErf;
}

EncoderActivation ReadEncoderActivation(ConfigReader& read, const char* key, const char* fallback) {
  return EncoderActivationOf(read, read.Text({key, ""}, fallback), key);
}

EncoderForm ReadSizes(ConfigReader& read, const SizeNames& names) {
  EncoderForm form;
  std::optional<int64_t> vocab;
  const weights::Tensor* embedding = read.gguf() ? read.files().Find("token_embd.weight") : nullptr;
  if (embedding != nullptr) vocab = std::clamp<int64_t>(embedding->rows(), 1, kMaxVocab);
  form.vocab = read.Small({"vocab_size", "vocab_size"}, 1, kMaxVocab, vocab);
  form.hidden = read.Small({names.hidden, "embedding_length"}, 1, kMaxWidth);
  form.layers = read.Small({names.layers, "block_count"}, 1, kMaxLayers);
  form.heads = read.Small({names.heads, "attention.head_count"}, 1, kMaxHeads);
  form.kv_heads = form.heads;
  form.feed_forward = read.Small({names.feed_forward, "feed_forward_length"}, 1, kMaxWidth);
  form.context = read.Small({names.context, "context_length"}, 1, 1 << 20);
  form.head_dim = form.hidden / form.heads;
  if (form.hidden % form.heads != 0 || form.head_dim > kernels::kMaxHeadDim || form.head_dim < 1) {
    read.Fail(fmt::format("{} heads of a hidden size of {} are not supported", form.heads, form.hidden));
  }
  return form;
}

void ReadSharedHeads(ConfigReader& read, EncoderForm& form) {
  form.kv_heads = read.Small({"num_key_value_heads", "attention.head_count_kv"}, 1, kMaxHeads, form.heads);
  form.head_dim = read.Small({"head_dim", "attention.key_length"}, 2, kernels::kMaxHeadDim, form.head_dim);
  if (form.heads % form.kv_heads != 0 || form.head_dim % 2 != 0) read.Fail("the heads cannot share KV heads");
}

float ReadEps(ConfigReader& read, const char* key, const char* gguf, double fallback) {
  return static_cast<float>(read.Positive({key, gguf}, 1, fallback));
}

int32_t ReadTypes(ConfigReader& read, int64_t fallback) {
  if (!read.gguf()) return read.Small({"type_vocab_size", ""}, 0, 64, fallback);
  const weights::Tensor* types = read.files().Find("token_types.weight");
  return types == nullptr ? 0 : static_cast<int32_t>(std::clamp<int64_t>(types->rows(), 1, 64));
}

bool HasUniformNames(ConfigReader& read) {
  if (read.gguf()) return false;
  return read.files().Find("layers.0.self_attn.q_proj.weight") != nullptr ||
         read.files().Find("roberta.layers.0.self_attn.q_proj.weight") != nullptr;
}

void UseUniformNames(EncoderNames& names) {
  names.layers = "layers.";
  names.embedding_norm = {"embeddings.LayerNorm", "token_embd_norm"};
  names.qkv = {"", "attn_qkv"};
  names.q = {"self_attn.q_proj", "attn_q"};
  names.k = {"self_attn.k_proj", "attn_k"};
  names.v = {"self_attn.v_proj", "attn_v"};
  names.out = {"self_attn.o_proj", "attn_output"};
  names.attention_norm = {"post_attention_layernorm", "attn_output_norm"};
  names.mlp_norm = {"post_mlp_layernorm", "layer_output_norm"};
}

}  // namespace quire::runner::models
