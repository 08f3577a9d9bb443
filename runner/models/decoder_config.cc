#include "runner/models/decoder_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runner/kernels/attention.h"
#include "runner/models/sentence_pooling.h"

namespace quire::runner::models {
namespace {

// A GGUF may leave the number of tokens to its embedding.
std::optional<int64_t> VocabFallback(ConfigReader& read, int32_t given) {
  if (!read.gguf()) return given > 0 ? std::optional<int64_t>(given) : std::nullopt;
  const weights::Tensor* embedding = read.files().Find("token_embd.weight");
  if (embedding == nullptr) {
    read.Fail("tensor token_embd.weight is missing");
    return 1;
  }
  return std::clamp<int64_t>(embedding->rows(), 1, kMaxVocab);
}

bool ReadTied(ConfigReader& read, TiedByDefault by_default) {
  const auto stored = [&](const char* name) { return read.files().Find(name) != nullptr; };
  if (read.gguf()) return !stored("output.weight");
  const bool has_head = stored("lm_head.weight") || stored("language_model.lm_head.weight") ||
                        stored("embed_out.weight") || stored("head.weight");
  const bool tied =
      read.Boolean({"tie_embedding|tie_word_embeddings", ""}, by_default == TiedByDefault::kYes || !has_head);
  // A multimodal configuration may say otherwise than its text_config. What is stored then decides.
  const auto& config = read.files().config();
  const auto outer = config.find("tie_word_embeddings");
  if (outer != config.end() && outer->is_boolean() && outer->get<bool>() != tied) return !has_head;
  return tied || IsSavedWithoutHead(read.files());
}

void ReadActivation(ConfigReader& read, const DecoderConfig& given, DecoderConfig* config) {
  config->activation = given.activation;
  config->plain_activation = given.plain_activation;
  const std::string name = read.Text({"hidden_activation|hidden_act|activation_function|activation", ""}, "");
  const bool erf = name == "gelu" || name == "gelu_python";
  const bool gelu = name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast";
  if (name.empty()) return;
  if (given.plain_activation) {
    if (gelu) {
      config->plain_activation = PlainActivation::kGelu;
    } else if (erf) {
      config->plain_activation = PlainActivation::kGeluErf;
    } else if (name == "silu" || name == "swish") {
      config->plain_activation = PlainActivation::kSilu;
    } else if (name == "relu") {
      config->plain_activation = PlainActivation::kRelu;
    } else if (name == "relu2" || name == "sqrelu") {
      config->plain_activation = PlainActivation::kSquaredRelu;
    } else if (name != "xielu" || given.plain_activation != PlainActivation::kXielu) {
      read.Fail(fmt::format("hidden_act: \"{}\" is not supported", name.substr(0, 60)));
    }
  } else if (gelu) {
    config->activation = Activation::kGelu;
  } else if (erf) {
    config->activation = Activation::kGeluErf;
  } else if (name == "relu2") {
    config->activation = Activation::kSquaredRelu;
  } else if (name == "silu" || name == "swish") {
    config->activation = Activation::kSilu;
  } else if (name == "swigluoai" && given.clamp.limit > 0) {
    return;
  } else {
    read.Fail(fmt::format("hidden_act: \"{}\" is not supported", name.substr(0, 60)));
  }
}

}  // namespace

DecoderConfig ReadDecoderConfig(ConfigReader& read, const DecoderConfig& given, TiedByDefault tied) {
  const auto known = [](int32_t value) { return value > 0 ? std::optional<int64_t>(value) : std::nullopt; };
  DecoderConfig config;
  config.vocab = read.Small({"vocab_size", "vocab_size"}, 1, kMaxVocab, VocabFallback(read, given.vocab));
  config.hidden =
      read.Small({"hidden_size|n_embd|n_embed", "embedding_length"}, 1, kMaxWidth, known(given.hidden));
  config.layers =
      read.Small({"num_hidden_layers|n_layer", "block_count"}, 1, kMaxLayers, known(given.layers));
  config.heads = 1;
  if (given.heads >= 0)
    config.heads = read.Small({"num_attention_heads|num_heads|n_head", "attention.head_count"}, 1, kMaxHeads,
                              known(given.heads));
  config.kv_heads = config.heads;
  if (given.kv_heads >= 0) {
    config.kv_heads = read.Small({"num_key_value_heads", "attention.head_count_kv"}, 1, kMaxHeads,
                                 given.kv_heads > 0 ? given.kv_heads : config.heads);
  }
  config.context = read.Small({"max_position_embeddings|n_positions", "context_length"}, 1, kMaxContext,
                              known(given.context));
  const auto eps = given.norm_eps > 0 ? std::optional<double>(given.norm_eps) : std::nullopt;
  constexpr ConfigKey kRmsEps = {"norm_eps|rms_norm_eps|block_norm_eps|layer_norm_epsilon",
                                 "attention.layer_norm_rms_epsilon"};
  // A family with layer norms may call their epsilon as one with RMS norms does.
  const bool layer_norms = given.norm == NormKind::kLayer || given.norm == NormKind::kZeroCenteredLayer ||
                           given.norm == NormKind::kPlainLayer;
  constexpr ConfigKey kLayerEps = {"layer_norm_eps|norm_epsilon|layer_norm_epsilon|norm_eps|rms_norm_eps",
                                   "attention.layer_norm_epsilon|attention.layer_norm_rms_epsilon"};
  config.norm = given.norm;
  config.head_bias = given.head_bias;
  config.norm_eps = static_cast<float>(read.Positive(layer_norms ? kLayerEps : kRmsEps, 1, eps));
  ReadActivation(read, given, &config);
  config.tied = ReadTied(read, tied);
  if (given.head_dim < 0) return config;
  config.head_dim = read.Small({"head_dim", "attention.key_length"}, 0, kernels::kMaxHeadDim,
                               read.SaysNull("head_dim") ? 0 : given.head_dim);
  if (config.head_dim == 0 && !read.error()) {
    if (config.hidden % config.heads != 0) {
      read.Fail(fmt::format("the hidden size {} is not a multiple of {} heads", config.hidden, config.heads));
    }
    config.head_dim = config.hidden / config.heads;
  }
  CheckHeads(read, config.heads, config.kv_heads, config.head_dim);
  return config;
}

void CheckHeads(ConfigReader& read, int32_t heads, int32_t kv_heads, int32_t head_dim) {
  if (kv_heads < 1 || kv_heads > heads || heads % kv_heads != 0) {
    return read.Fail(fmt::format("{} attention heads cannot share {} KV heads", heads, kv_heads));
  }
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > kernels::kMaxHeadDim) {
    read.Fail(fmt::format("the head dimension {} is odd or above {}", head_dim, kernels::kMaxHeadDim));
  }
}

float ReadMultiplier(ConfigReader& read, ConfigKey key) {
  return static_cast<float>(read.Positive(key, 1e6, 1));
}

int32_t ReadFeedForward(ConfigReader& read, int32_t given) {
  return read.Small({"intermediate_size|n_inner|ffn_hidden_size", "feed_forward_length"}, 1, kMaxWidth,
                    given > 0 ? std::optional<int64_t>(given) : std::nullopt);
}

std::vector<int32_t> ReadWindows(ConfigReader& read, int32_t layers, bool (*slides)(int32_t, int32_t),
                                 int32_t period, int32_t given_window) {
  std::vector<int32_t> windows(static_cast<size_t>(layers), 0);
  const int32_t window = read.Small({"sliding_window", "attention.sliding_window"}, 0, kMaxContext,
                                    read.SaysNull("sliding_window") ? 0 : given_window);
  const auto listed = read.Kinds({"layer_types", ""}, layers, "sliding_attention", "full_attention");
  // GGUF has a truth value per layer, or a period.
  constexpr ConfigKey kPattern = {"", "attention.sliding_window_pattern"};
  const auto* pattern = read.Find(kPattern);
  const auto flags =
      pattern != nullptr && pattern->is_array() ? read.Booleans(kPattern, layers) : std::nullopt;
  for (size_t i = 0; i < windows.size(); ++i) {
    bool sliding = slides(static_cast<int32_t>(i), period);
    if (listed) sliding = (*listed)[i];
    if (flags) sliding = (*flags)[i];
    if (sliding) windows[i] = window;
  }
  return windows;
}

}  // namespace quire::runner::models
