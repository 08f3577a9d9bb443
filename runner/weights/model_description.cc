#include "runner/weights/model_description.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/json/option_fields.h"
#include "runner/weights/generation_defaults.h"
#include "runner/weights/ggml_types.h"

namespace quire::runner::weights {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kArrayItemsShown = 5;

int64_t CountParameters(const ModelFiles& files) {
  int64_t count = 0;
  for (const Tensor& tensor : files.tensors()) count += tensor.elements();
  return count;
}

std::optional<DataType> DominantType(const ModelFiles& files) {
  std::map<DataType, int64_t> elements;
  for (const Tensor& tensor : files.tensors()) elements[tensor.type] += tensor.elements();
  const auto dominant =
      std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  if (dominant == elements.end()) return std::nullopt;
  return dominant->first;
}

std::string Quantization(const ModelFiles& files) {
  const ordered_json& config = files.config();
  if (const auto found = config.find("general.file_type");
      files.format() == Format::kGguf && found != config.end() && found->is_number_unsigned()) {
    const auto name = GgufFileTypeName(found->get<int64_t>());
    if (!name.empty()) return std::string(name);
  }
  const auto dominant = DominantType(files);
  return dominant ? std::string(Name(*dominant)) : std::string();
}

json GgufInfo(const ModelFiles& files, bool verbose) {
  json info = json::object();
  for (const auto& [key, value] : files.config().items()) {
    if (key == "general.name" || key == "tokenizer.chat_template") continue;
    if (value.is_array() && value.size() > kArrayItemsShown && !verbose) {
      info[key] = nullptr;
    } else {
      info[key] = value;
    }
  }
  return info;
}

struct ConfigKey {
  std::string_view gguf;  // after "ARCHITECTURE."
  const char* config;     // in config.json or its text_config
};

// The first that is there counts, where a GGUF key has several names in config.json.
constexpr auto kConfigKeys = std::to_array<ConfigKey>({
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count", "num_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.value_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_rms_epsilon", "norm_eps"},
    {"attention.layer_norm_rms_epsilon", "block_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"rope.freq_base", "rope_theta"},
    {"shortconv.l_cache", "conv_L_cache"},
    {"expert_count", "num_experts"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"vocab_size", "vocab_size"},
});

// A number of config.json, of its text_config or of its rope_parameters; null when there is none.
const ordered_json* FindNumber(const ordered_json& config, const char* key) {
  if (!config.is_object()) return nullptr;
  if (const auto found = config.find(key); found != config.end() && found->is_number()) return &*found;
  for (const char* inner : {"text_config", "rope_parameters"}) {
    const auto object = config.find(inner);
    if (object == config.end()) continue;
    if (const ordered_json* found = FindNumber(*object, key)) return found;
  }
  return nullptr;
}

json HuggingFaceInfo(const ModelFiles& files) {
  const std::string architecture = files.architecture();
  json info = {{"general.architecture", architecture}};
  for (const ConfigKey& key : kConfigKeys) {
    const std::string name = architecture + "." + std::string(key.gguf);
    const ordered_json* number = FindNumber(files.config(), key.config);
    if (number != nullptr && !info.contains(name)) info[name] = *number;
  }
  if (const auto type = DominantType(files)) info["general.file_type"] = GgufFileTypeOf(*type);
  return info;
}

// Names come from the file, so bytes that are no UTF-8 are replaced rather than thrown over.
std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string TensorList(const ModelFiles& files) {
  json list = json::array();
  for (const Tensor& tensor : files.tensors()) {
    json shape = json::array();
    std::ranges::copy(tensor.shape.rbegin(), tensor.shape.rend(), std::back_inserter(shape));
    list.push_back({{"name", tensor.name}, {"type", Name(tensor.type)}, {"shape", std::move(shape)}});
  }
  return Dump(list);
}

}  // namespace

api::ipc::Inspected Describe(const ModelFiles& files, bool verbose, bool sampling) {
  json info = files.format() == Format::kGguf ? GgufInfo(files, verbose) : HuggingFaceInfo(files);
  api::ipc::Inspected described;
  described.parameters = CountParameters(files);
  info["general.parameter_count"] = described.parameters;
  described.model_info_json = Dump(info);
  described.tensors_json = TensorList(files);
  described.chat_template = files.chat_template();
  described.quantization = Quantization(files);
  described.repairs.assign(files.repairs().begin(), files.repairs().end());
  if (!sampling) return described;
  GenerationDefaults defaults = ReadGenerationDefaults(files);
  described.sampling_json = api::DumpOptions(defaults.options);
  if (!described.sampling_json.empty()) described.sampling_source = defaults.source;
  std::ranges::move(defaults.notes, std::back_inserter(described.repairs));
  return described;
}

}  // namespace quire::runner::weights
