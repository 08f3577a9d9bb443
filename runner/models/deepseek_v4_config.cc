#include "runner/models/deepseek_v4_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/kernels/attention.h"

namespace quire::runner::models {
namespace {

constexpr int32_t kMaxRate = 1 << 16;

// The number of channels that are rotated. transformers follows the share first.
int32_t ReadRotated(ConfigReader& read, int32_t head_dim) {
  constexpr ConfigKey kDims = {"qk_rope_head_dim", "rope.dimension_count"};
  int32_t rotated = read.Small(kDims, 2, head_dim, head_dim / 8);
  std::optional<int32_t> share;
  for (const char* name : {"partial_rotary_factor", "rope_parameters/main/partial_rotary_factor",
                           "rope_parameters/compress/partial_rotary_factor"}) {
    if (read.Find({name, ""}) == nullptr) continue;
    const auto channels = static_cast<int32_t>(read.Positive({name, ""}, 1) * head_dim);
    if (share && *share != channels) read.Fail(fmt::format("{}: layers rotate different shares", name));
    share = channels;
  }
  rotated = share.value_or(rotated);
  if (rotated % 2 != 0 || rotated < 2) {
    read.Fail(fmt::format("{}: {} channels are not pairs", read.Name(kDims), rotated));
  }
  return std::max(rotated / 2 * 2, 2);
}

RopeSpec ReadV4Rope(ConfigReader& read, int32_t rotated, bool compressed) {
  RopeQuery query{.head_dim = rotated,
                  .layer_type = compressed ? "compress" : "main",
                  .default_theta = compressed ? 160000.0 : 10000.0,
                  .partial = 1,
                  .scaled = compressed,
                  .pairs = kernels::RopePairs::kInterleaved,
                  .gguf_pairs = kernels::RopePairs::kInterleaved};
  if (compressed) query.theta = {"compress_rope_theta", "attention.compress_rope_freq_base"};
  RopeSpec spec = ReadRope(read, query);
  // YaRN's growth is left out; a given one has no implementation.
  const auto* const factor =
      read.Find({"rope_parameters/compress/attention_factor|rope_scaling/attention_factor", ""});
  if (factor != nullptr && *factor != 1) read.Fail("attention_factor: only 1 is supported for this family");
  spec.magnitude = 1;
  return spec;
}

CompressedAttentionShape ReadCompressedAttention(ConfigReader& read, const DecoderConfig& decoder) {
  CompressedAttentionShape shape{.heads = decoder.heads, .eps = decoder.norm_eps};
  const auto given = [&](int64_t value) { return read.gguf() ? std::nullopt : std::optional(value); };
  shape.head_dim = read.Small({"head_dim", "attention.key_length"}, 4, kernels::kMaxHeadDim, given(512));
  shape.rotated = ReadRotated(read, shape.head_dim);
  shape.query_rank = read.Small({"q_lora_rank", "attention.q_lora_rank"}, 1, kMaxWidth, given(1024));
  shape.window = read.Small({"sliding_window", "attention.sliding_window"}, 1, kMaxContext, given(128));
  constexpr ConfigKey kGroups = {"o_groups", "attention.output_group_count"};
  shape.groups = read.Small(kGroups, 1, decoder.heads, given(8));
  shape.group_rank = read.Small({"o_lora_rank", "attention.output_lora_rank"}, 1, kMaxWidth, given(1024));
  if (decoder.heads % shape.groups != 0) {
    read.Fail(fmt::format("{}: {} heads are not {} groups", read.Name(kGroups), decoder.heads, shape.groups));
  }
  if (read.Small({"num_key_value_heads", "attention.head_count_kv"}, 1, decoder.heads, 1) != 1) {
    read.Fail("num_key_value_heads: only 1 is supported for this family");
  }
  return shape;
}

// layer_types with compress_rates, which count first, or a rate for each layer; a list may go on with layers
// that predict further tokens.
void ReadRates(ConfigReader& read, DeepSeekV4Config* config) {
  constexpr ConfigKey kRatios = {"compress_ratios", "attention.compress_ratios"};
  const auto* const types = read.Find({"layer_types", ""});
  const auto* const ratios = read.Find(kRatios);
  const int32_t csa =
      read.Small({"compress_rate_csa|compress_rates/compressed_sparse_attention", ""}, 1, kMaxRate, 4);
  const int32_t hca =
      read.Small({"compress_rate_hca|compress_rates/heavily_compressed_attention", ""}, 1, kMaxRate, 128);
  const auto* const list = types != nullptr ? types : ratios;
  const char* const name = types != nullptr ? "layer_types" : "compress_ratios";
  if (list == nullptr || !list->is_array() || list->size() < config->layers.size()) {
    return read.Fail(fmt::format("{} is not a list with an entry for each layer", name));
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    DeepSeekV4Layer& layer = config->layers[i];
    if (types != nullptr) {
      const std::string type = (*types)[i].is_string() ? (*types)[i].get<std::string>() : "";
      layer.chooses = type == "compressed_sparse_attention";
      layer.rate = layer.chooses ? csa : type == "heavily_compressed_attention" ? hca : 0;
      if (layer.rate == 0 && type != "sliding_attention") {
        return read.Fail(fmt::format("layer_types[{}]: \"{}\" is not supported", i, type.substr(0, 60)));
      }
      continue;
    }
    const int64_t rate = ConfigReader::WholeNumber((*ratios)[i]).value_or(-1);
    // Programs know these by their rates; a GGUF file also shows which layers choose.
    const bool known = rate == 0 || rate == 4 || rate == 128;
    if (rate < 0 || rate > kMaxRate || (!known && !read.gguf())) {
      return read.Fail(fmt::format("{}[{}] is not one of 0, 4 and 128", read.Name(kRatios), i));
    }
    layer.rate = static_cast<int32_t>(rate);
    layer.chooses =
        read.gguf()
            ? rate > 0 && read.files().Find(fmt::format("blk.{}.indexer.attn_q_b.weight", i)) != nullptr
            : rate == 4;
  }
}

void ReadHashLayers(ConfigReader& read, DeepSeekV4Config* config) {
  const auto listed = read.Kinds({"mlp_layer_types", ""}, config->decoder.layers, "hash_moe", "moe");
  const int32_t first =
      read.Small({"num_hash_layers", "hash_layer_count"}, 0, kMaxLayers, read.gguf() ? 0 : 3);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].hashed = listed ? (*listed)[i] : i < static_cast<size_t>(first);
  }
}

void ReadClamps(ConfigReader& read, DeepSeekV4Config* config) {
  const auto clamp = [](double limit) {
    return kernels::SwigluClamp{.limit = static_cast<float>(limit), .slope = 1, .shift = 0};
  };
  if (!read.gguf()) {
    const kernels::SwigluClamp one = clamp(read.Positive({"swiglu_limit", ""}, 1e6, 10));
    for (DeepSeekV4Layer& layer : config->layers) layer.clamp = layer.shared_clamp = one;
    return;
  }
  constexpr ConfigKey kExperts = {"", "swiglu_clamp_exp"}, kShared = {"", "swiglu_clamp_shexp"};
  for (const bool shared : {false, true}) {
    const ConfigKey key = shared ? kShared : kExperts;
    if (read.Find(key) == nullptr) continue;
    const std::vector<double> limits = read.Numbers(key, config->layers.size(), 1e6);
    for (size_t i = 0; i < config->layers.size(); ++i) {
      (shared ? config->layers[i].shared_clamp : config->layers[i].clamp) = clamp(limits[i]);
    }
  }
}

}  // namespace

DeepSeekV4Config ReadDeepSeekV4Config(ConfigReader& read) {
  using Score = MixtureConfig::Score;
  DeepSeekV4Config config{.decoder =
                              ReadDecoderConfig(read, {.kv_heads = -1, .head_dim = -1, .norm_eps = 1e-6F})};
  const DecoderConfig& decoder = config.decoder;
  if (decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  config.attention = ReadCompressedAttention(read, decoder);
  config.layers.resize(static_cast<size_t>(decoder.layers));
  ReadRates(read, &config);
  ReadHashLayers(read, &config);
  ReadClamps(read, &config);
  for (const bool compressed : {false, true}) {
    config.ropes[compressed ? 1 : 0] = ReadV4Rope(read, config.attention.rotated, compressed);
  }
  config.streams = {.form = StreamShape::Form::kMixing,
                    .hidden = decoder.hidden,
                    .norm_eps = decoder.norm_eps,
                    .magnitude = 2};
  ReadStreams(read, &config.streams);
  config.mixture = ReadMixture(
      read, decoder.layers, {.score = Score::kSqrtSoftplus, .scale = 1.5, .shared = 1, .all_sparse = true});
  config.mixture.normalize_eps = 1e-20F;
  if (!config.mixture.normalize) read.Fail("norm_topk_prob: only true is supported for this family");
  if (config.mixture.shared_width != config.mixture.width) {
    read.Fail("n_shared_experts: only 1 is supported for this family");
  }
  if (config.mixture.groups > 1) read.Fail("n_group: only 1 is supported for this family");
  const bool chooses = std::ranges::any_of(config.layers, &DeepSeekV4Layer::chooses);
  const auto given = [&](int64_t value) {
    return read.gguf() && chooses ? std::nullopt : std::optional(value);
  };
  config.index_heads = read.Small({"index_n_heads", "attention.indexer.head_count"}, 1, kMaxHeads, given(64));
  config.index_dim =
      read.Small({"index_head_dim", "attention.indexer.key_length"}, 2, kernels::kMaxHeadDim, given(128));
  config.index_best = read.Small({"index_topk", "attention.indexer.top_k"}, 1, kMaxContext, given(512));
  if (chooses && config.index_dim < config.attention.rotated) {
    read.Fail(fmt::format("index_head_dim: {} is less than the {} channels that are rotated",
                          config.index_dim, config.attention.rotated));
  }
  read.Require("attention_bias", false);
  read.Require("mlp_bias", false);
  // Said twice, or of layers that predict further tokens, or of how experts are stored.
  read.Ignore({"expert_dtype", "compress_ratios", "layer_types", "num_nextn_predict_layers",
               "qk_rope_head_dim", "partial_rotary_factor", "compress_rope_theta", "rope_theta"});
  return config;
}

}  // namespace quire::runner::models
