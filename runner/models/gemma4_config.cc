#include "runner/models/gemma4_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/kernels/attention.h"

namespace quire::runner::models {
namespace {

// The heads of full layers as transformers writes them since version 5: what layer 5 has in place of the
// values for all layers is under "5".
void ReadPerLayerHeads(ConfigReader& read, const nlohmann::ordered_json& overrides, Gemma4Config* config) {
  std::optional<int64_t> full_head_dim;
  size_t used = 0;
  for (size_t i = 0; i < config->windows.size(); ++i) {
    const std::string layer = fmt::format("per_layer_config/{}", i);
    const std::string dim = layer + "/head_dim", heads = layer + "/num_key_value_heads";
    used += overrides.contains(std::to_string(i)) ? 1 : 0;
    const bool slides = config->windows[i] > 0;
    const int64_t head_dim = read.Integer({dim, ""}, 2, kernels::kMaxHeadDim, config->decoder.head_dim);
    config->kv_heads[i] = read.Integer({heads, ""}, 1, kMaxHeads, config->kv_heads[i]);
    const int64_t expected = slides ? config->decoder.head_dim : full_head_dim.value_or(head_dim);
    if (head_dim != expected) read.Fail(fmt::format("{} is {}, not {}", dim, head_dim, expected));
    if (!slides) full_head_dim = head_dim;
  }
  if (!overrides.is_object() || used != overrides.size()) {
    read.Fail("per_layer_config has members that are not layers");
  }
  config->full_head_dim = static_cast<int32_t>(full_head_dim.value_or(config->decoder.head_dim));
}

// In GGUF the plain names are of full layers, those of sliding layers end in "_swa".
void ReadHeads(ConfigReader& read, Gemma4Config* config) {
  DecoderConfig& decoder = config->decoder;
  constexpr int32_t kMax = kernels::kMaxHeadDim;
  decoder.head_dim = read.Small({"head_dim", "attention.key_length_swa"}, 2, kMax, 256);
  config->full_head_dim = read.Small({"global_head_dim", "attention.key_length"}, 2, kMax, 512);
  const auto layers = static_cast<size_t>(decoder.layers);
  config->kv_heads =
      read.Integers({"num_key_value_heads", "attention.head_count_kv"}, decoder.layers, 1, kMaxHeads);
  if (read.Boolean({"attention_k_eq_v", ""}, false)) {
    const int64_t full = read.Integer({"num_global_key_value_heads", ""}, 1, kMaxHeads, config->kv_heads[0]);
    for (size_t i = 0; i < layers; ++i) {
      if (config->windows[i] == 0) config->kv_heads[i] = full;
    }
  }
  if (const auto* overrides = read.FindOrNull("per_layer_config"); overrides != nullptr) {
    ReadPerLayerHeads(read, *overrides, config);
  }
  for (size_t i = 0; i < layers; ++i) {
    CheckHeads(read, decoder.heads, static_cast<int32_t>(config->kv_heads[i]), config->head_dim(i));
  }
  decoder.kv_heads = static_cast<int32_t>(config->kv_heads[0]);
}

void ReadFeedForwards(ConfigReader& read, Gemma4Config* config) {
  config->feed_forward =
      read.Integers({"intermediate_size", "feed_forward_length"}, config->decoder.layers, 1, kMaxWidth);
  if (!read.Boolean({"use_double_wide_mlp", ""}, false)) return;
  for (size_t i = static_cast<size_t>(config->own_layers); i < config->feed_forward.size(); ++i) {
    config->feed_forward[i] *= 2;
  }
}

void ReadRopes(ConfigReader& read, Gemma4Config* config) {
  config->sliding_rope = ReadRope(read, {.head_dim = config->decoder.head_dim,
                                         .layer_type = "sliding_attention",
                                         .theta = {"", "rope.freq_base_swa"},
                                         .default_theta = 10000,
                                         .dimensions = {"", "rope.dimension_count_swa"},
                                         .scaled = false});
  config->full_rope = ReadRope(read, {.head_dim = config->full_head_dim,
                                      .layer_type = "full_attention",
                                      .theta = {"", "rope.freq_base"},
                                      .default_theta = 1e6});
}

void ReadGemma4Experts(ConfigReader& read, Gemma4Config* config) {
  if (!read.gguf() && !read.Boolean({"enable_moe_block", ""}, false)) return;
  config->experts = read.Small({"num_experts", "expert_count"}, 0, kMaxExperts, 0);
  if (config->experts == 0) return;
  config->experts_used = read.Small({"top_k_experts", "expert_used_count"}, 1, config->experts);
  config->expert_feed_forward =
      read.Small({"moe_intermediate_size", "expert_feed_forward_length"}, 1, kMaxWidth);
}

}  // namespace

Gemma4Config ReadGemma4Config(ConfigReader& read) {
  Gemma4Config config;
  config.decoder = ReadDecoderConfig(
      read, {.kv_heads = -1, .norm_eps = 1e-6F, .activation = Activation::kGelu}, TiedByDefault::kYes);
  if (config.decoder.activation != Activation::kGelu) read.Fail("hidden_activation is not a gelu");
  const int32_t layers = config.decoder.layers;
  config.windows = ReadWindows(
      read, layers, [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; }, 6, 512);
  ReadHeads(read, &config);
  config.own_layers =
      layers - read.Small({"num_kv_shared_layers", "attention.shared_kv_layers"}, 0, layers, 0);
  ReadFeedForwards(read, &config);
  ReadRopes(read, &config);
  ReadGemma4Experts(read, &config);
  config.per_layer_width =
      read.Small({"hidden_size_per_layer_input", "embedding_length_per_layer_input"}, 0, kMaxWidth, 0);
  config.per_layer_vocab = read.Small({"vocab_size_per_layer_input", ""}, 0, kMaxVocab, config.decoder.vocab);
  if (config.per_layer_width > 0 && config.per_layer_vocab < config.decoder.vocab) {
    read.Fail(fmt::format("vocab_size_per_layer_input {} is below vocab_size {}", config.per_layer_vocab,
                          config.decoder.vocab));
  }
  // "vision": tokens of an image attend to each other, tokens of text backwards. GGUF does not say it: only
  // models with inputs of each layer's own do without.
  const auto* both_ways = read.Find({"use_bidirectional_attention", ""});
  if (both_ways != nullptr && *both_ways != "vision" && *both_ways != false) {
    read.Fail("use_bidirectional_attention: bidirectional attention is not supported");
  }
  config.images_both_ways =
      read.gguf() ? config.per_layer_width == 0 : both_ways != nullptr && *both_ways == "vision";
  if (const auto* pad = read.Find({"pad_token_id", ""}); pad != nullptr) {
    const int64_t id = ConfigReader::WholeNumber(*pad).value_or(0);
    if (id > 0 && id < config.decoder.vocab) config.image_token = static_cast<int32_t>(id);
  }
  read.Ignore({"num_global_key_value_heads"});
  if (config.experts == 0) read.Ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
  read.Require("attention_bias", false);
  constexpr ConfigKey kCap = {"final_logit_softcapping", "final_logit_softcapping"};
  if (read.Find(kCap) != nullptr) config.logit_cap = static_cast<float>(read.Positive(kCap, 1e6));
  return config;
}

}  // namespace quire::runner::models
