#include "runner/models/lfm2_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runner/kernels/attention.h"
#include "runner/models/config_reader.h"

namespace quire::runner::models {
namespace {

// Far above any published model, low enough that no product of two overflows and nothing big is allocated on
// the word of a configuration alone.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxWidth = 1 << 18;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxContext = 1 << 30;
constexpr int64_t kMaxConvKernel = 64;

int32_t Small(int64_t value) { return static_cast<int32_t>(value); }

// ["conv", "full_attention", ...], one entry per layer.
void ReadLayerTypes(ConfigReader& read, const nlohmann::ordered_json& types,
                    std::vector<bool>* is_attention) {
  if (!types.is_array() || types.size() != is_attention->size()) {
    return read.Fail(
        fmt::format("layer_types is not a list of {} entries, one per layer", is_attention->size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    const bool attention = types[i] == "full_attention";
    if (!attention && types[i] != "conv") {
      return read.Fail(fmt::format("layer_types[{}] is neither \"conv\" nor \"full_attention\"", i));
    }
    (*is_attention)[i] = attention;
  }
}

// Indices of the attention layers.
void ReadAttentionIndices(ConfigReader& read, const nlohmann::ordered_json& indices,
                          std::vector<bool>* is_attention) {
  if (!indices.is_array()) return read.Fail("full_attn_idxs is not a list");
  for (const auto& index : indices) {
    const int64_t layer = ConfigReader::WholeNumber(index).value_or(-1);
    if (layer < 0 || layer >= std::ssize(*is_attention) || (*is_attention)[static_cast<size_t>(layer)]) {
      return read.Fail(
          fmt::format("full_attn_idxs holds something other than different layer numbers below {}",
                      is_attention->size()));
    }
    (*is_attention)[static_cast<size_t>(layer)] = true;
  }
}

std::vector<bool> ReadLayerKinds(ConfigReader& read) {
  const auto layers = static_cast<size_t>(read.Integer({"num_hidden_layers"}, 1, kMaxLayers));
  std::vector<bool> by_type(layers), by_index(layers);
  const auto* types = read.Find({"layer_types"});
  const auto* indices = read.Find({"full_attn_idxs"});
  if (types != nullptr) ReadLayerTypes(read, *types, &by_type);
  if (indices != nullptr) ReadAttentionIndices(read, *indices, &by_index);
  if (types == nullptr && indices == nullptr)
    read.Fail("the configuration lacks layer_types and full_attn_idxs");
  if (types != nullptr && indices != nullptr && by_type != by_index) {
    read.Fail("layer_types and full_attn_idxs name different attention layers");
  }
  return types != nullptr ? by_type : by_index;
}

// The published configurations give the width before an adjustment that their training code makes.
int32_t ReadFeedForward(ConfigReader& read) {
  int64_t width = read.Integer({"block_ff_dim", "intermediate_size"}, 1, kMaxWidth);
  if (!read.Boolean({"block_auto_adjust_ff_dim"}, true)) return Small(width);
  const double multiplier = read.Positive({"block_ffn_dim_multiplier"}, 64, 1.0);
  const int64_t multiple = read.Integer({"block_multiple_of"}, 1, kMaxWidth, 256);
  const int64_t two_thirds = 2 * width / 3;
  width = static_cast<int64_t>(multiplier * static_cast<double>(two_thirds));
  if (width < 1) read.Fail("the adjusted feed-forward width is 0");
  return Small((width + multiple - 1) / multiple * multiple);
}

// Other names for the hidden size; the layers here have no place for another width.
void CheckWidths(ConfigReader& read, int64_t hidden) {
  for (const std::string_view key : {"block_dim", "conv_dim", "conv_dim_out"}) {
    if (read.Integer({key}, 1, kMaxWidth, hidden) != hidden) {
      read.Fail(fmt::format("{} differs from hidden_size {}", key, hidden));
    }
  }
}

void ReadRope(ConfigReader& read, Lfm2Config* config) {
  config->rope_theta = read.Positive({"rope_parameters/rope_theta", "rope_theta"}, 1e15);
  const std::string type = read.Text({"rope_parameters/rope_type", "rope_scaling/rope_type"}, "default");
  if (type != "default") read.Fail(fmt::format("the rotary embedding type \"{}\" is not supported", type));
}

void ReadHuggingFace(ConfigReader& read, Lfm2Config* config) {
  config->vocab = Small(read.Integer({"vocab_size"}, 1, kMaxVocab));
  config->hidden = Small(read.Integer({"hidden_size"}, 1, kMaxWidth));
  config->feed_forward = ReadFeedForward(read);
  config->heads = Small(read.Integer({"num_attention_heads", "num_heads"}, 1, kMaxHeads));
  config->kv_heads = Small(read.Integer({"num_key_value_heads"}, 1, kMaxHeads));
  config->head_dim = Small(read.Integer({"head_dim"}, 0, kernels::kMaxHeadDim, 0));
  config->context = Small(read.Integer({"max_position_embeddings"}, 1, kMaxContext));
  config->conv_kernel = Small(read.Integer({"conv_L_cache"}, 2, kMaxConvKernel));
  config->conv_bias = read.Boolean({"conv_bias"}, false);
  config->tied = read.Boolean({"tie_embedding", "tie_word_embeddings"}, true);
  config->norm_eps = static_cast<float>(read.Positive({"norm_eps", "block_norm_eps"}, 1));
  ReadRope(read, config);
  config->is_attention = ReadLayerKinds(read);
  CheckWidths(read, config->hidden);
}

// A number of KV heads per layer; 0 marks a convolution.
void ReadKvHeads(ConfigReader& read, int64_t layers, Lfm2Config* config) {
  constexpr std::string_view kKey = "lfm2.attention.head_count_kv";
  config->is_attention.assign(static_cast<size_t>(layers), false);
  const auto* counts = read.Find({kKey});
  if (counts == nullptr || !counts->is_array() || counts->size() != config->is_attention.size()) {
    return read.Fail(fmt::format("{} is not a list of {} numbers, one per layer", kKey, layers));
  }
  for (size_t i = 0; i < counts->size(); ++i) {
    const int64_t count = ConfigReader::WholeNumber((*counts)[i]).value_or(-1);
    if (count < 0 || count > kMaxHeads)
      return read.Fail(fmt::format("{}[{}] is not a number of heads", kKey, i));
    const int32_t heads = Small(count);
    if (heads == 0) continue;
    if (config->kv_heads != 0 && config->kv_heads != heads) {
      return read.Fail(fmt::format("{} differs between attention layers", kKey));
    }
    config->kv_heads = heads;
    config->is_attention[i] = true;
  }
}

void ReadGguf(ConfigReader& read, const weights::ModelFiles& files, Lfm2Config* config) {
  const weights::Tensor* embedding = files.Find("token_embd.weight");
  if (embedding == nullptr) return read.Fail("tensor token_embd.weight is missing");
  const int64_t rows = std::clamp<int64_t>(embedding->rows(), 1, kMaxVocab);
  config->vocab = Small(read.Integer({"lfm2.vocab_size"}, 1, kMaxVocab, rows));
  config->hidden = Small(read.Integer({"lfm2.embedding_length"}, 1, kMaxWidth));
  config->feed_forward = Small(read.Integer({"lfm2.feed_forward_length"}, 1, kMaxWidth));
  config->heads = Small(read.Integer({"lfm2.attention.head_count"}, 1, kMaxHeads));
  config->head_dim = Small(read.Integer({"lfm2.attention.key_length"}, 0, kernels::kMaxHeadDim, 0));
  config->context = Small(read.Integer({"lfm2.context_length"}, 1, kMaxContext));
  config->conv_kernel = Small(read.Integer({"lfm2.shortconv.l_cache"}, 2, kMaxConvKernel));
  config->norm_eps = static_cast<float>(read.Positive({"lfm2.attention.layer_norm_rms_epsilon"}, 1));
  config->rope_theta = read.Positive({"lfm2.rope.freq_base"}, 1e15);
  if (const std::string type = read.Text({"lfm2.rope.scaling.type"}, "none"); type != "none") {
    read.Fail(fmt::format("the rotary embedding type \"{}\" is not supported", type));
  }
  config->tied = files.Find("output.weight") == nullptr;
  ReadKvHeads(read, read.Integer({"lfm2.block_count"}, 1, kMaxLayers), config);
  // Nothing attends: any geometry will do, none of it is used.
  if (config->kv_heads == 0) config->kv_heads = config->heads;
}

void CheckHeads(ConfigReader& read, Lfm2Config* config) {
  if (read.error()) return;
  const int32_t heads = config->heads, kv_heads = config->kv_heads;
  if (kv_heads > heads || heads % kv_heads != 0) {
    return read.Fail(fmt::format("{} attention heads cannot share {} KV heads", heads, kv_heads));
  }
  if (config->head_dim == 0) {
    if (config->hidden % heads != 0) {
      return read.Fail(
          fmt::format("the hidden size {} is not a multiple of {} heads", config->hidden, heads));
    }
    config->head_dim = config->hidden / heads;
  }
  if (config->head_dim % 2 != 0 || config->head_dim > kernels::kMaxHeadDim) {
    read.Fail(
        fmt::format("the head dimension {} is odd or above {}", config->head_dim, kernels::kMaxHeadDim));
  }
}

}  // namespace

api::Result<Lfm2Config> ReadLfm2Config(const weights::ModelFiles& files) {
  ConfigReader read(files);
  Lfm2Config config;
  if (files.format() == weights::Format::kGguf) {
    ReadGguf(read, files, &config);
  } else {
    ReadHuggingFace(read, &config);
  }
  CheckHeads(read, &config);
  if (read.error()) return std::unexpected(*read.error());
  return config;
}

std::string LayerTensor(weights::Format format, size_t layer, Lfm2TensorName name) {
  if (format == weights::Format::kGguf) return fmt::format("blk.{}.{}.weight", layer, name.gguf);
  return fmt::format("model.layers.{}.{}.weight", layer, name.hugging_face);
}

}  // namespace quire::runner::models
