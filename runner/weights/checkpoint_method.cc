#include "runner/weights/checkpoint_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
using Kind = CheckpointMethod::Kind;

struct KnownMethod {
  std::string_view name;
  Kind kind;
};
constexpr KnownMethod kMethods[] = {{"fp8", Kind::kFp8},
                                    {"gptq", Kind::kGptq},
                                    {"awq", Kind::kAwq},
                                    {"compressed-tensors", Kind::kCompressedTensors},
                                    {"bitnet", Kind::kBitNet}};

// Keys without a meaning for the weights: who made them and how, kernels, and modules that are not quantized,
// which the tensors themselves say. How activations were to be quantized: here they are not.
constexpr std::string_view kWithoutMeaning[] = {"quant_method",
                                                "modules_to_not_convert",
                                                "ignored_layers",
                                                "ignore",
                                                "activation_scheme",
                                                "true_sequential",
                                                "static_groups",
                                                "damp_percent",
                                                "damp_auto_increment",
                                                "model_name_or_path",
                                                "model_file_base_name",
                                                "quantizer",
                                                "meta",
                                                "dataset",
                                                "tokenizer",
                                                "block_name_to_quantize",
                                                "module_name_preceding_first_block",
                                                "modules_in_block_to_quantize",
                                                "batch_size",
                                                "pad_token_id",
                                                "use_cuda_fp16",
                                                "model_seqlen",
                                                "max_input_length",
                                                "cache_block_outputs",
                                                "backend",
                                                "use_exllama",
                                                "disable_exllama",
                                                "exllama_config",
                                                "lm_head",
                                                "mse",
                                                "uri",
                                                "act_group_aware",
                                                "do_fuse",
                                                "fuse_max_seq_len",
                                                "modules_to_fuse",
                                                "quantization_status",
                                                "global_compression_ratio",
                                                "version",
                                                "dequantize",
                                                "targets",
                                                "observer",
                                                "observer_kwargs",
                                                "actorder",
                                                "input_activations",
                                                "scale_dtype",
                                                "zp_dtype"};

const ordered_json* MemberOf(const ordered_json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() ? nullptr : &*found;
}

// What says nothing: null, false, an empty text, list or object.
bool SaysNothing(const ordered_json& value) {
  return value.is_null() || value == false ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

std::string_view MethodName(const ordered_json& config) {
  const ordered_json* quantization = MemberOf(config, "quantization_config");
  const ordered_json* name = quantization == nullptr ? nullptr : MemberOf(*quantization, "quant_method");
  return name != nullptr && name->is_string() ? std::string_view(name->get_ref<const std::string&>())
                                              : std::string_view();
}

const KnownMethod* FindMethod(const ordered_json& config) {
  const auto* found = std::ranges::find(kMethods, MethodName(config), &KnownMethod::name);
  return found == std::end(kMethods) ? nullptr : found;
}

// Reads one object. After the first error the rest is harmless.
class MethodReader {
 public:
  MethodReader(const ordered_json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // An integer among `known`, or an error.
  int64_t OneOf(std::string_view key, std::span<const int64_t> known) {
    read_.push_back(key);
    const ordered_json* value = MemberOf(object_, key);
    if (value != nullptr && value->is_number_integer()) {
      const auto found = std::ranges::find(known, value->get<int64_t>());
      if (found != known.end()) return *found;
    }
    Refuse(key, value);
    return known.front();
  }
  int64_t Group() {
    read_.emplace_back("group_size");
    const ordered_json* value = MemberOf(object_, "group_size");
    if (value == nullptr || *value == -1) return 0;
    if (value->is_number_integer() && *value > 0 && *value <= (1 << 20)) return value->get<int64_t>();
    Refuse("group_size", value);
    return 0;
  }
  bool Flag(std::string_view key, bool fallback) {
    read_.push_back(key);
    const ordered_json* value = MemberOf(object_, key);
    if (value == nullptr || value->is_null()) return fallback;
    if (!value->is_boolean()) Refuse(key, value);
    return value->is_boolean() && value->get<bool>();
  }
  // The text, which is `known`'s or absent.
  std::string_view Text(std::string_view key, std::span<const std::string_view> known) {
    read_.push_back(key);
    const ordered_json* value = MemberOf(object_, key);
    if (value == nullptr || value->is_null()) return {};
    const std::string_view text =
        value->is_string() ? std::string_view(value->get_ref<const std::string&>()) : std::string_view();
    if (std::ranges::find(known, text) == known.end()) Refuse(key, value);
    return text;
  }
  std::vector<int64_t> Sizes(std::string_view key) {
    read_.push_back(key);
    const ordered_json* value = MemberOf(object_, key);
    std::vector<int64_t> sizes;
    if (value == nullptr || value->is_null()) return sizes;
    for (const ordered_json& size : *value) {
      if (size.is_number_integer() && size > 0 && size <= (1 << 20)) sizes.push_back(size.get<int64_t>());
    }
    if (!value->is_array() || value->size() != 2 || sizes.size() != 2) {
      Refuse(key, value);
      sizes.clear();
    }
    return sizes;
  }
  void Know(std::string_view key) { read_.push_back(key); }

  // An error for keys that were not read.
  void Finish() {
    for (const auto& [key, value] : object_.items()) {
      const auto is = [&key = key](std::string_view one) { return one == key; };
      if (SaysNothing(value) || std::ranges::any_of(read_, is) || std::ranges::any_of(kWithoutMeaning, is))
        continue;
      Refuse(key, &value);
    }
  }

  void Refuse(std::string_view key, const ordered_json* value) {
    if (!error_.empty()) return;
    const std::string shown =
        value == nullptr ? "absent" : value->dump(-1, ' ', true, ordered_json::error_handler_t::replace);
    error_ = fmt::format("{}{}: {} is not supported", path_, key.substr(0, 60), shown.substr(0, 100));
  }
  const std::string& error() const { return error_; }

 private:
  const ordered_json& object_;
  const std::string path_;
  std::vector<std::string_view> read_;
  std::string error_;
};

using Texts = std::vector<std::string_view>;
using Integers = std::vector<int64_t>;

void ReadFp8(MethodReader& read, CheckpointMethod& method) {
  read.Text("fmt", Texts{"e4m3", "float8_e4m3fn"});
  read.Text("scale_fmt", Texts{"ue8m0", "float"});
  if (const auto sizes = read.Sizes("weight_block_size"); !sizes.empty()) {
    method.block_rows = sizes[0];
    method.block_columns = sizes[1];
  }
}

void ReadGptq(MethodReader& read, CheckpointMethod& method) {
  method.bits = static_cast<int32_t>(read.OneOf("bits", Integers{4, 8}));
  method.group = read.Group();
  method.symmetric = read.Flag("sym", false);
  method.any_order = read.Flag("desc_act", false);
  method.zeros_as_are = read.Text("checkpoint_format", Texts{"gptq", "gptq_v2"}) == "gptq_v2";
  read.Text("pack_dtype", Texts{"int32"});
}

void ReadAwq(MethodReader& read, CheckpointMethod& method) {
  method.bits = static_cast<int32_t>(read.OneOf("bits", Integers{4}));
  method.group = read.Group();
  // "version" has a meaning here: how codes are packed.
  read.Text("version", Texts{"gemm", "GEMM"});
  if (!read.Flag("zero_point", true)) {
    const ordered_json no = false;
    read.Refuse("zero_point", &no);
  }
}

// Weights that are made ternary while a model runs are of training.
void ReadBitNet(MethodReader& read, CheckpointMethod& method) {
  method.divides = read.Text("linear_class", Texts{"bitlinear", "autobitlinear"}) != "autobitlinear";
  read.Text("quantization_mode", Texts{"offline"});
  read.Know("rms_norm_eps");  // of use_rms_norm, which is refused
}

// One scheme of compressed-tensors. Bits and groups are those of the tensors.
std::string CheckScheme(const ordered_json& scheme, const std::string& path) {
  MethodReader read(scheme, path);
  const ordered_json* weights = MemberOf(scheme, "weights");
  read.Know("weights");
  read.Text("format", Texts{"float-quantized", "int-quantized", "pack-quantized", "naive-quantized"});
  read.Finish();
  if (!read.error().empty()) return read.error();
  if (weights == nullptr || !weights->is_object()) return path + "weights: absent";
  MethodReader inner(*weights, path + "weights/");
  const bool floats = inner.Text("type", Texts{"float", "int"}) == "float";
  inner.OneOf("num_bits", floats ? Integers{8} : Integers{4, 8});
  inner.Text("strategy", Texts{"tensor", "channel", "group", "block"});
  inner.Flag("symmetric", true);
  inner.Know("group_size");
  inner.Know("block_structure");
  inner.Finish();
  return inner.error();
}

void ReadCompressedTensors(const ordered_json& object, MethodReader& read, std::string& error) {
  read.Text("format", Texts{"float-quantized", "int-quantized", "pack-quantized", "naive-quantized",
                            "mixed-precision"});
  read.Know("config_groups");
  if (const ordered_json* sparsity = MemberOf(object, "sparsity_config");
      sparsity != nullptr && sparsity->is_object()) {
    const ordered_json* format = MemberOf(*sparsity, "format");
    if (sparsity->empty() || (format != nullptr && *format == "dense")) read.Know("sparsity_config");
  }
  const ordered_json* groups = MemberOf(object, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty())
    return read.Refuse("config_groups", groups);
  for (const auto& [name, scheme] : groups->items()) {
    if (error.empty())
      error = CheckScheme(scheme, fmt::format("quantization_config/config_groups/{}/", name.substr(0, 60)));
  }
}

}  // namespace

bool HasCheckpointMethod(const ordered_json& config) { return FindMethod(config) != nullptr; }

api::Result<std::optional<CheckpointMethod>> ReadCheckpointMethod(const ordered_json& config,
                                                                  const std::string& file) {
  const KnownMethod* known = FindMethod(config);
  if (known == nullptr) return std::nullopt;
  const ordered_json& object = config.at("quantization_config");
  CheckpointMethod method{.kind = known->kind};
  MethodReader read(object, "quantization_config/");
  std::string error;
  switch (known->kind) {
    case Kind::kFp8:
      ReadFp8(read, method);
      break;
    case Kind::kGptq:
      ReadGptq(read, method);
      break;
    case Kind::kAwq:
      ReadAwq(read, method);
      break;
    case Kind::kCompressedTensors:
      ReadCompressedTensors(object, read, error);
      break;
    case Kind::kBitNet:
      ReadBitNet(read, method);
      break;
  }
  read.Finish();
  if (error.empty()) error = read.error();
  if (!error.empty()) return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file, error));
  return method;
}

}  // namespace quire::runner::weights
