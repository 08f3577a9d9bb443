// BERT and its relatives as properties. Formulas: the papers and published configurations named beside each.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runner/kernels/key_value.h"
#include "runner/models/decoder_config.h"
#include "runner/models/encoder.h"
#include "runner/models/panel_store.h"

namespace quire::runner::models {
namespace {

using weights::ModelFiles;

// What a family's reader gives: its form, and how its classification head is stored.
struct Encoding {
  EncoderForm form;
  TensorName score_dense, score_norm, score_out;  // the complete names without ".weight"
  Bias score_dense_bias = Bias::kPresent, score_out_bias = Bias::kPresent;
  HeadActivation score_activation = HeadActivation::kTanh;
  EncoderPooling score_pooling = EncoderPooling::kFirst;
};

// The first of the prefixes with which the tensor is there.
std::string FindPrefix(ConfigReader& read, std::initializer_list<const char*> prefixes, const char* tensor) {
  if (read.gguf()) return "";
  for (const char* prefix : prefixes) {
    if (read.files().Find(fmt::format("{}{}", prefix, tensor)) != nullptr) return prefix;
  }
  return *prefixes.begin();
}

EncoderActivation ReadEncoderActivation(ConfigReader& read, const char* key, const char* fallback) {
  const std::string name = read.Text({key, ""}, fallback);
  if (name == "gelu" || name == "gelu_python") return EncoderActivation::kGeluErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return EncoderActivation::kGeluTanh;
  if (name == "relu") return EncoderActivation::kRelu;
  if (name == "silu" || name == "swish") return EncoderActivation::kSilu;
  read.Fail(fmt::format("{}: \"{}\" is not supported", key, name.substr(0, 60)));
  return EncoderActivation::kGeluErf;
}

// The sizes that all families name alike, but for the names of a checkpoint.
struct SizeNames {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* feed_forward = "intermediate_size";
  const char* context = "max_position_embeddings";
};

EncoderForm ReadSizes(ConfigReader& read, const SizeNames& names = {}, int32_t context = 0) {
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
  form.context = read.Small({names.context, "context_length"}, 1, 1 << 20,
                            context > 0 ? std::optional<int64_t>(context) : std::nullopt);
  form.head_dim = form.hidden / form.heads;
  if (form.hidden % form.heads != 0 || form.head_dim > kernels::kMaxHeadDim || form.head_dim < 1) {
    read.Fail(fmt::format("{} heads of a hidden size of {} are not supported", form.heads, form.hidden));
  }
  return form;
}

float ReadEps(ConfigReader& read, const char* key, const char* gguf, double fallback) {
  return static_cast<float>(read.Positive({key, gguf}, 1, fallback));
}

// Devlin et al. 2018; RoBERTa, XLM-RoBERTa (Conneau et al. 2019): positions begin behind the padding token's.
Encoding ReadBert(ConfigReader& read) {
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
  const weights::Tensor* types = read.files().Find("token_types.weight");
  form.types = read.gguf()
                   ? (types == nullptr ? 0 : static_cast<int32_t>(std::clamp<int64_t>(types->rows(), 1, 64)))
                   : read.Small({"type_vocab_size", ""}, 0, 64, 2);
  read.Require("is_decoder", false);
  read.Require("add_cross_attention", false);
  read.Require("position_embedding_type", "absolute");
  read.Ignore({"tie_word_embeddings", "output_past", "directionality", "pooler_fc_size", "pooler_type",
               "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
               "sentence_transformers"});
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

// Warner et al. 2024: gated feed-forward layers, rotary positions, a window in two layers of three.
Encoding ReadModernBert(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  const auto bias = [&](const char* key) {
    return read.gguf() ? Bias::kIfStored : read.Boolean({key, ""}, false) ? Bias::kPresent : Bias::kAbsent;
  };
  form.norm_eps = ReadEps(read, "norm_eps", "attention.layer_norm_epsilon", 1e-5);
  form.norms = EncoderNorms::kBefore;
  form.first_norm = false;
  form.norm_bias = bias("norm_bias");
  form.attention_bias = form.out_bias = bias("attention_bias");
  form.mlp_bias = bias("mlp_bias");
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
  const auto types = read.Texts({"layer_types", ""}, form.layers);
  for (int32_t i = 0; i < form.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    bool slides = sliding ? (*sliding)[at] : i % period != 0;
    if (types) {
      slides = (*types)[at] == "sliding_attention";
      if (!slides && (*types)[at] != "full_attention") read.Fail("layer_types: an unknown type of layer");
    }
    form.reach.push_back(slides ? window / 2 : -1);
    form.rope_of.push_back(slides ? 1 : 0);
  }
  read.Require("position_embedding_type", "absolute");
  read.Ignore({"tie_word_embeddings", "layer_norm_eps", "sparse_prediction", "sparse_pred_ignore_index",
               "decoder_bias", "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad",
               "cls_token_id", "sep_token_id", "global_attn_every_n_layers", "sentence_transformers"});
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
  made.score_dense_bias = bias("classifier_bias");
  const std::string pooling = read.Text({"classifier_pooling", ""}, "cls");
  if (pooling != "cls" && pooling != "mean") read.Fail("classifier_pooling: only cls and mean are supported");
  const int64_t stored = read.Integer({"", "classifier.pooling_type"}, 0, 4, 2);
  made.score_pooling = pooling == "mean" || stored == 1 ? EncoderPooling::kMean : EncoderPooling::kFirst;
  made.score_activation = ReadHeadActivation(
      read, read.Text({"classifier_activation", "classifier.activation"}, "gelu"), "classifier_activation");
  return made;
}

// Gemma 3 whose tokens see both ways.
Encoding ReadEmbeddingGemma(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read);
  form.kv_heads = read.Small({"num_key_value_heads", "attention.head_count_kv"}, 1, kMaxHeads, form.heads);
  form.head_dim = read.Small({"head_dim", "attention.key_length"}, 2, kernels::kMaxHeadDim, form.head_dim);
  if (form.heads % form.kv_heads != 0 || form.head_dim % 2 != 0) read.Fail("the heads cannot share KV heads");
  form.norm = NormKind::kZeroCenteredRms;
  form.norm_eps = ReadEps(read, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6);
  form.norms = EncoderNorms::kAround;
  form.attention_bias = form.out_bias =
      read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  form.mlp_bias = Bias::kAbsent;
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

// nomic-embed-text (Nussbaum et al. 2024): BERT with rotary positions and SwiGLU.
Encoding ReadNomicBert(ConfigReader& read) {
  Encoding made;
  EncoderForm& form = made.form = ReadSizes(read, {.hidden = "n_embd",
                                                   .layers = "n_layer",
                                                   .heads = "n_head",
                                                   .feed_forward = "n_inner",
                                                   .context = "n_positions"});
  // Beyond these the published code stretches the angles, which is not implemented.
  form.context = std::min(form.context, read.Small({"max_trained_positions", ""}, 1, 1 << 20, form.context));
  form.norm_eps = ReadEps(read, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-12);
  const auto bias = [&](const char* key) {
    return read.gguf() ? Bias::kIfStored : read.Boolean({key, ""}, false) ? Bias::kPresent : Bias::kAbsent;
  };
  form.attention_bias = form.out_bias = bias("qkv_proj_bias");
  form.mlp_bias = bias("mlp_fc1_bias");
  read.Require("mlp_fc2_bias", form.mlp_bias == Bias::kPresent);
  form.gated = true;
  form.activation = EncoderActivation::kSilu;
  const weights::Tensor* types = read.files().Find("token_types.weight");
  form.types = read.gguf()
                   ? (types == nullptr ? 0 : static_cast<int32_t>(std::clamp<int64_t>(types->rows(), 1, 64)))
                   : read.Small({"type_vocab_size", ""}, 0, 64, 2);
  form.ropes.push_back(ReadRope(read, {.head_dim = form.head_dim,
                                       .theta = {"rotary_emb_base", "rope.freq_base"},
                                       .default_theta = read.gguf() ? 10000.0 : 1000.0}));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
  for (const char* key : {"prenorm", "parallel_block", "use_rms_norm", "rotary_emb_interleaved", "causal",
                          "scale_attn_by_inverse_layer_idx", "tie_word_embeddings"}) {
    if (std::string_view(key) != "tie_word_embeddings") read.Require(key, false);
  }
  read.Require("activation_function", "swiglu");
  read.Require("rotary_emb_fraction", 1.0);
  read.Ignore({"tie_word_embeddings", "fused_bias_fc", "fused_dropout_add_ln", "use_xentropy",
               "dense_seq_output", "last_layer_subset", "mlp_fc1_bias", "pad_vocab_size_multiple",
               "reorder_and_upcast_attn", "scale_attn_weights", "summary_activation", "summary_first_dropout",
               "summary_proj_to_labels", "summary_type", "summary_use_proj", "rotary_scaling_factor",
               "matryoshka_dims", "vocab_size"});
  EncoderNames& names = form.names;
  names.prefix = FindPrefix(read, {"", "bert."}, "embeddings.word_embeddings.weight");
  names.layers = "encoder.layers.";
  names.tokens = {"embeddings.word_embeddings", "token_embd"};
  names.types = {"embeddings.token_type_embeddings", "token_types"};
  names.embedding_norm = {"emb_ln", "token_embd_norm"};
  names.qkv = {"attn.Wqkv", "attn_qkv"};
  names.q = {"attn.Wq", "attn_q"};
  names.k = {"attn.Wk", "attn_k"};
  names.v = {"attn.Wv", "attn_v"};
  names.out = {"attn.out_proj", "attn_output"};
  names.attention_norm = {"norm1", "attn_output_norm"};
  names.up = {"mlp.fc11", "ffn_up"};
  names.gate = {"mlp.fc12", "ffn_gate"};
  names.down = {"mlp.fc2", "ffn_down"};
  names.mlp_norm = {"norm2", "layer_output_norm"};
  return made;
}

struct EncoderFamily {
  Architecture architecture;
  Encoding (*read)(ConfigReader&);
};

constexpr std::array kEncoders = {
    EncoderFamily{{"BERT", "bert", "bert"}, ReadBert},
    EncoderFamily{{"RoBERTa, XLM-RoBERTa", "xlm-roberta|roberta|camembert", "bert"}, ReadBert},
    EncoderFamily{{"ModernBERT", "modernbert", "modern-bert"}, ReadModernBert},
    EncoderFamily{{"EmbeddingGemma", "gemma3_text", "gemma-embedding"}, ReadEmbeddingGemma},
    EncoderFamily{{"Nomic BERT", "nomic_bert", "nomic-bert"}, ReadNomicBert},
};

bool Names(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t bar = list.find('|');
    if (list.substr(0, bar) == name) return true;
    list = bar == std::string_view::npos ? std::string_view() : list.substr(bar + 1);
  }
  return false;
}

const EncoderFamily* FindEncoder(const ModelFiles& files) {
  const bool gguf = files.format() == weights::Format::kGguf;
  const std::string name = files.architecture();
  for (const EncoderFamily& family : kEncoders) {
    if (Names(gguf ? family.architecture.gguf : family.architecture.hugging_face, name)) return &family;
  }
  return nullptr;
}

void BindScore(ConfigReader& read, TensorBinder& bind, const Encoding& made, ScoreHead& score) {
  const TensorScope outside = bind.Outside();
  const int64_t hidden = made.form.hidden;
  const auto bias = [&](Bias of_checkpoint) { return read.gguf() ? Bias::kIfStored : of_checkpoint; };
  score.pooling = made.score_pooling;
  score.activation = made.score_activation;
  const bool alone = read.gguf() && !outside.HasWeight(made.score_out);
  if (alone) {  // one matrix, which scores
    score.out = outside.BindLinear(made.score_dense, 1, hidden, Bias::kIfStored);
    return;
  }
  const bool absent = read.gguf() && !outside.HasWeight(made.score_dense);
  if (!absent)
    score.dense = outside.BindLinear(made.score_dense, hidden, hidden, bias(made.score_dense_bias));
  if (!made.score_norm.gguf.empty() && outside.HasWeight(made.score_norm)) {
    score.norm = {.kind = NormKind::kLayer,
                  .weight = outside.Norm(made.score_norm, made.form.hidden),
                  .bias = outside.BiasOf(made.score_norm, made.form.hidden, Bias::kIfStored),
                  .eps = made.form.norm_eps};
  }
  score.out = outside.BindLinear(made.score_out, 1, hidden, bias(made.score_out_bias));
}

}  // namespace

bool IsEncoder(const ModelFiles& files) {
  if (FindEncoder(files) == nullptr) return false;
  if (files.architecture() != "gemma3_text") return true;
  const auto both = files.config().find("use_bidirectional_attention");
  return both != files.config().end() && *both == true;
}

bool HasScoreHead(const ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) {
    return files.Find("cls.output.weight") != nullptr || files.Find("cls.weight") != nullptr;
  }
  const auto architectures = files.config().find("architectures");
  return architectures != files.config().end() && architectures->is_array() && architectures->size() == 1 &&
         architectures->front().is_string() &&
         architectures->front().get_ref<const std::string&>().ends_with("ForSequenceClassification");
}

api::Result<std::unique_ptr<Encoder>> LoadEncoder(std::shared_ptr<const ModelFiles> files) {
  ConfigReader read(*files);
  const EncoderFamily* family = FindEncoder(*files);
  Encoding made = family->read(read);
  if (!read.error()) read.RefuseUnreadKeys();
  if (read.error()) return std::unexpected(*read.error());
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  EncoderHead head;
  if (HasScoreHead(*files)) {
    head.pooling = EncoderPooling::kNone;
    if (made.score_out.gguf.empty()) read.Fail("a classification head is not supported for this family");
    if (!read.error()) BindScore(read, bind, made, head.score);
  } else {
    ReadEncoderHead(read, bind, made.form.hidden, head);
  }
  if (read.error()) return std::unexpected(*read.error());
  if (bind.error()) return std::unexpected(*bind.error());
  auto encoder = std::make_unique<Encoder>(files, bind, made.form, std::move(head));
  if (bind.error()) return std::unexpected(*bind.error());
  return encoder;
}

std::vector<Architecture> SupportedEncoders() {
  std::vector<Architecture> architectures;
  architectures.reserve(kEncoders.size());
  for (const EncoderFamily& family : kEncoders) architectures.push_back(family.architecture);
  return architectures;
}

}  // namespace quire::runner::models
