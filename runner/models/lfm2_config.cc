#include "runner/models/lfm2_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace quire::runner::models {
namespace {

// Indices of the attention layers.
std::vector<bool> KindsByIndex(ConfigReader& read, const nlohmann::ordered_json& indices, int32_t layers) {
  std::vector<bool> is_attention(static_cast<size_t>(layers));
  if (!indices.is_array()) {
    read.Fail("full_attn_idxs is not a list");
    return is_attention;
  }
  for (const auto& index : indices) {
    const int64_t layer = ConfigReader::WholeNumber(index).value_or(-1);
    if (layer < 0 || layer >= layers || is_attention[static_cast<size_t>(layer)]) {
      read.Fail(fmt::format("full_attn_idxs must contain distinct layer numbers below {}", layers));
      break;
    }
    is_attention[static_cast<size_t>(layer)] = true;
  }
  return is_attention;
}

std::vector<bool> ReadLfm2LayerKinds(ConfigReader& read, int32_t layers) {
  const auto by_type = read.Kinds({"layer_types", ""}, layers, "full_attention", "conv");
  const auto* indices = read.Find({"full_attn_idxs", ""});
  if (indices == nullptr) {
    if (!by_type) read.Fail("the configuration lacks layer_types and full_attn_idxs");
    return by_type.value_or(std::vector<bool>(static_cast<size_t>(layers)));
  }
  std::vector<bool> by_index = KindsByIndex(read, *indices, layers);
  if (by_type && by_index != *by_type) {
    read.Fail("layer_types and full_attn_idxs name different attention layers");
  }
  return by_index;
}

// A number of KV heads per layer; 0 marks a convolution.
void ReadKvHeads(ConfigReader& read, Lfm2Config* config) {
  constexpr ConfigKey kKey = {"", "attention.head_count_kv"};
  const int32_t layers = config->decoder.layers;
  config->is_attention.assign(static_cast<size_t>(layers), false);
  const auto* list = read.Find(kKey);
  if (list == nullptr || !list->is_array()) {
    return read.Fail(fmt::format("{} is not a list of {} numbers, one per layer", read.Name(kKey), layers));
  }
  const std::vector<int64_t> counts = read.Integers(kKey, layers, 0, kMaxHeads);
  int64_t kv_heads = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (kv_heads != 0 && counts[i] != kv_heads) {
      read.Fail(fmt::format("{} differs between attention layers", read.Name(kKey)));
    }
    kv_heads = counts[i];
    config->is_attention[i] = true;
  }
  if (kv_heads == 0) return;  // nothing attends: any geometry will do
  config->decoder.kv_heads = static_cast<int32_t>(kv_heads);
  CheckHeads(read, config->decoder.heads, config->decoder.kv_heads, config->decoder.head_dim);
}

// The published configurations give the width before an adjustment that their training code makes.
int32_t ReadAdjustedFeedForward(ConfigReader& read) {
  int64_t width = read.Integer({"block_ff_dim|intermediate_size", "feed_forward_length"}, 1, kMaxWidth);
  if (read.gguf() || !read.Boolean({"block_auto_adjust_ff_dim", ""}, true))
    return static_cast<int32_t>(width);
  const double multiplier = read.Positive({"block_ffn_dim_multiplier", ""}, 64, 1.0);
  const int64_t multiple = read.Integer({"block_multiple_of", ""}, 1, kMaxWidth, 256);
  const int64_t two_thirds = 2 * width / 3;
  width = static_cast<int64_t>(multiplier * static_cast<double>(two_thirds));
  if (width < 1) read.Fail("the adjusted feed-forward width is 0");
  return static_cast<int32_t>((width + multiple - 1) / multiple * multiple);
}

// Other names for the hidden size; the layers here have no place for another width.
void CheckWidths(ConfigReader& read, int64_t hidden) {
  for (const std::string_view key : {"block_dim", "conv_dim", "conv_dim_out"}) {
    if (read.Integer({key, ""}, 1, kMaxWidth, hidden) != hidden) {
      read.Fail(fmt::format("{} differs from hidden_size {}", key, hidden));
    }
  }
}

void ReadLfm2Experts(ConfigReader& read, Lfm2Config* config) {
  config->feed_forward = ReadFeedForward(read);
  config->dense_layers =
      read.Small({"num_dense_layers", "leading_dense_block_count"}, 0, config->decoder.layers, 0);
  config->experts = read.Small({"num_experts", "expert_count"}, 1, kMaxExperts);
  config->experts_used = read.Small({"num_experts_per_tok", "expert_used_count"}, 1, config->experts);
  config->expert_feed_forward =
      read.Small({"moe_intermediate_size", "expert_feed_forward_length"}, 1, kMaxWidth);
  config->expert_bias = read.Boolean({"use_expert_bias", ""}, true);
  config->normalize = read.Boolean({"norm_topk_prob", "expert_weights_norm"}, true);
  config->expert_scale =
      static_cast<float>(read.Positive({"routed_scaling_factor", "expert_weights_scale"}, 1e6, 1));
  if (read.Integer({"", "expert_gating_func"}, 0, 16, 2) != 2) read.Fail("expert_gating_func is not sigmoid");
}

}  // namespace

Lfm2Config ReadLfm2Config(ConfigReader& read) {
  Lfm2Config config;
  config.decoder = ReadDecoderConfig(read, {.kv_heads = read.gguf() ? -1 : 0}, TiedByDefault::kYes);
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim});
  // llama.cpp reads it for this architecture only; config.json has no such key.
  if (read.files().architecture() == "lfm2") {
    config.window = read.Small({"", "attention.sliding_window"}, 0, kMaxContext, 0);
  }
  config.conv_kernel = read.Small({"conv_L_cache", "shortconv.l_cache"}, 2, kMaxConvKernel);
  for (const std::string_view key : {"use_pos_enc", "block_use_swiglu"}) read.Require(key, true);
  config.conv_bias = read.Boolean({"conv_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  // These belong to the width before its adjustment, also where there is none.
  read.Ignore({"block_multiple_of", "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim"});
  config.dense_layers = config.decoder.layers;
  const std::string kind = read.gguf() ? read.files().architecture() : read.Text({"model_type", ""}, "");
  if (kind.ends_with("moe")) {
    ReadLfm2Experts(read, &config);
  } else {
    config.feed_forward = ReadAdjustedFeedForward(read);
  }
  if (read.gguf()) {
    ReadKvHeads(read, &config);
  } else {
    config.is_attention = ReadLfm2LayerKinds(read, config.decoder.layers);
    CheckWidths(read, config.decoder.hidden);
  }
  return config;
}

}  // namespace quire::runner::models
