#include "runner/models/hybrid_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "runner/kernels/attention.h"

namespace quire::runner::models {
namespace {

constexpr int32_t kMaxStates = 1 << 16;

// A number, or infinity as transformers writes it.
std::optional<double> NumberOrInfinity(const nlohmann::ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  const bool infinite = value.is_object() && value.size() == 1 && value.contains("__float__") &&
                        value["__float__"] == "Infinity";
  return infinite ? std::optional(std::numeric_limits<double>::infinity()) : std::nullopt;
}

void ReadStepLimits(ConfigReader& read, MambaForm* form) {
  form->step_low = 0;
  form->step_high = std::numeric_limits<float>::infinity();
  const auto* limits = read.Find({"time_step_limit", ""});
  if (limits == nullptr) return;
  std::optional<double> low, high;
  if (limits->is_array() && limits->size() == 2) {
    low = NumberOrInfinity((*limits)[0]);
    high = NumberOrInfinity((*limits)[1]);
  }
  if (!low || !high || !(*low >= 0) || !(*high >= *low) || *low > 1e6) {
    return read.Fail("time_step_limit is not two numbers, ascending from 0");
  }
  form->step_low = static_cast<float>(*low);
  form->step_high = static_cast<float>(*high);
}

// Which layers attend in a GGUF file, and how many KV heads they have.
void ReadHybridHeads(ConfigReader& read, HybridForm* form) {
  DecoderConfig& decoder = form->decoder;
  constexpr ConfigKey kKvHeads = {"num_key_value_heads", "attention.head_count_kv"};
  if (read.gguf()) {
    decoder.kv_heads = 0;
    const std::vector<int64_t> by_layer = read.Integers(kKvHeads, decoder.layers, 0, kMaxHeads);
    for (size_t i = 0; i < by_layer.size(); ++i) {
      if (by_layer[i] == 0) continue;
      form->layers[i].attends = true;
      if (decoder.kv_heads != 0 && decoder.kv_heads != by_layer[i]) {
        read.Fail(fmt::format("{}: layers differ in their KV heads", read.Name(kKvHeads)));
      }
      decoder.kv_heads = static_cast<int32_t>(by_layer[i]);
    }
    if (decoder.kv_heads == 0) decoder.kv_heads = decoder.heads;
  } else {
    decoder.kv_heads = read.Small(kKvHeads, 1, kMaxHeads, decoder.heads);
  }
  const std::optional<int64_t> shared = decoder.hidden % decoder.heads == 0
                                            ? std::optional<int64_t>(decoder.hidden / decoder.heads)
                                            : std::nullopt;
  decoder.head_dim =
      read.Small({"head_dim|attention_head_dim", "attention.key_length"}, 1, kernels::kMaxHeadDim, shared);
  CheckHeads(read, decoder.heads, decoder.kv_heads, decoder.head_dim);
}

}  // namespace

HybridForm ReadHybridForm(ConfigReader& read, const HybridQuery& query) {
  DecoderConfig given = query.given;
  given.kv_heads = given.head_dim = -1;
  if (!query.attends) given.heads = -1;
  if (query.layer_eps) given.norm_eps = 1;
  HybridForm form{.decoder = ReadDecoderConfig(read, given, query.tied)};
  if (query.layer_eps) {
    form.decoder.norm_eps =
        static_cast<float>(read.Positive({"layer_norm_epsilon|norm_eps|rms_norm_eps",
                                          "attention.layer_norm_rms_epsilon|attention.layer_norm_epsilon"},
                                         1, 1e-5));
  }
  if (form.decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  form.layers.resize(static_cast<size_t>(form.decoder.layers));
  if (query.attends) ReadHybridHeads(read, &form);
  read.Ignore({"time_step_min", "time_step_max", "time_step_floor", "time_step_rank", "chunk_size",
               "mamba_chunk_size", "rescale_prenorm_residual", "residual_in_fp32", "use_mamba_kernels",
               "num_logits_to_keep", "mamba_ssm_cache_dtype"});
  return form;
}

int64_t ReadStepRank(ConfigReader& read, ConfigKey key, int32_t hidden) {
  const auto* value = read.Find(key);
  const bool derived = value != nullptr && value->is_string() && *value == "auto";
  return derived ? (hidden + 15) / 16 : read.Integer(key, 1, kMaxWidth);
}

MambaForm ReadMamba2(ConfigReader& read, const Mamba2Keys& keys, int32_t hidden) {
  const auto key = [](const char* name, const char* gguf) {
    return ConfigKey{name == nullptr ? "" : name, gguf};
  };
  MambaForm form;
  kernels::SsdShape& shape = form.shape;
  shape.heads = read.Small(key(keys.heads, "ssm.time_step_rank"), 1, kMaxHeads);
  shape.groups = read.Small(key(keys.groups, "ssm.group_count"), 1, kMaxHeads);
  shape.state = read.Small(key(keys.state, "ssm.state_size"), 1, kMaxStates);
  form.kernel = read.Small(key(keys.kernel, "ssm.conv_kernel"), 1, kMaxConvKernel);
  std::optional<int64_t> expanded;
  if (keys.expand != nullptr) expanded = hidden * read.Integer({keys.expand, ""}, 1, 64, 2);
  const ConfigKey inner_key = key(keys.inner, "ssm.inner_size");
  const bool has_inner = read.gguf() || expanded || keys.inner != nullptr;
  const int64_t inner = has_inner ? read.Integer(inner_key, 1, kMaxWidth, expanded) : 0;
  const ConfigKey dim_key = key(keys.head_dim, "");
  const auto* dim = read.Find(dim_key);
  const bool derived =
      read.gguf() || keys.head_dim == nullptr || (dim != nullptr && dim->is_string() && *dim == "auto");
  shape.head_dim = derived ? inner / shape.heads : read.Small(dim_key, 1, kMaxWidth);
  if (has_inner && shape.inner() != inner) {
    read.Fail(fmt::format("{} state-space heads of {} do not make {} channels", shape.heads, shape.head_dim,
                          inner));
  }
  if (shape.heads % shape.groups != 0) {
    read.Fail(fmt::format("{} state-space heads cannot share {} groups", shape.heads, shape.groups));
  }
  if (shape.inner() > kMaxWidth || shape.channels() > kMaxWidth)
    read.Fail("the state-space layers are too wide");
  form.in_bias = ReadBias(read, keys.in_bias);
  form.conv_bias = ReadBias(read, keys.conv_bias, true);
  form.out_bias = ReadBias(read, keys.out_bias);
  ReadStepLimits(read, &form);
  return form;
}

}  // namespace quire::runner::models
