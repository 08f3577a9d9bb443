// What a family does not read of a config.json is refused by name: a key that no reader looks up may change
// what the model computes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "runner/models/config_reader.h"

namespace quire::runner::models {
namespace {

// Keys without meaning for the computation of logits: names, training, generation, how others run the model;
// or with a meaning only together with another key that is read.
constexpr std::array<std::string_view, 66> kNoReadingNeeded = {
    "architectures", "model_type", "name_or_path", "transformers_version", "torch_dtype", "dtype", "auto_map",
    "tokenizer_class", "processor_class", "use_cache", "pretraining_tp", "output_attentions",
    "output_hidden_states", "return_dict", "torchscript", "id2label", "label2id", "num_labels",
    "problem_type", "chunk_size_feed_forward", "is_decoder", "is_encoder_decoder", "task_specific_params",
    "pruned_heads", "gradient_checkpointing", "output_router_logits", "router_aux_loss_coef",
    "aux_loss_alpha", "seq_aux", "router_z_loss_coef", "router_jitter_noise", "attn_implementation",
    "use_flash_attention", "use_flash_attn", "cache_implementation", "num_logits_to_keep", "unsloth_version",
    "unsloth_fixed", "neftune_noise_alpha", "max_length", "min_length", "max_new_tokens", "temperature",
    "top_k", "top_p", "do_sample", "repetition_penalty", "eos_token", "bos_token", "pad_token",
    "model_max_length", "tokenizer_model_max_length", "tokenizer_padding_side", "finetuning_task",
    "tie_encoder_decoder", "prefix", "generation_config", "initializer_range", "is_llama_config",
    "original_max_position_embeddings", "is_composition",
    // Read before a family is.
    "is_causal",
    // How a CrossEncoder shows scores.
    "sentence_transformers", "sbert_ce_default_activation_function",
    // Positions of text are the same in all sections.
    "mrope_section", "mrope_interleaved"};

bool NeedsNoReading(std::string_view key) {
  return key.starts_with("_") || key.starts_with("initializer_") || key.ends_with("initializer_range") ||
         key.ends_with("_token_id") || key.ends_with("_token_index") ||
         key.find("dropout") != std::string_view::npos || key.ends_with("_pdrop") ||
         key.ends_with("_init_scale") || key.ends_with("_xavier_init") ||
         std::ranges::find(kNoReadingNeeded, key) != kNoReadingNeeded.end();
}

// What switches a property off or says nothing.
bool IsNeutral(const nlohmann::ordered_json& value) {
  if (value.is_null() || value.empty()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

}  // namespace

bool ConfigReader::IsAccountedFor(const std::string& path, std::string_view key,
                                  const nlohmann::ordered_json& value) {
  if (NeedsNoReading(key) || IsNeutral(value) || names_asked_.contains(path)) return true;
  const std::string inside = path + "/";
  const auto asked = names_asked_.lower_bound(inside);
  if (!value.is_object() || asked == names_asked_.end() || !asked->starts_with(inside)) {
    Fail(
        fmt::format("the configuration has {}, which is not supported for this family", path.substr(0, 100)));
    return false;
  }
  return std::ranges::all_of(value.items(), [&](const auto& member) {
    return IsAccountedFor(inside + member.key(), member.key(), member.value());
  });
}

void ConfigReader::Require(std::string_view name, std::variant<bool, double, std::string_view> value) {
  const auto* found = Find({name, ""});
  if (found == nullptr) return;
  std::visit(
      [&](auto only) {
        if (*found != nlohmann::ordered_json(only)) Fail(fmt::format("{}: only {} is supported", name, only));
      },
      value);
}

void ConfigReader::RefuseUnreadKeys() {
  if (gguf() || error_ || !files_.config().is_object()) return;
  const nlohmann::ordered_json& config = files_.config();
  const auto text = config.find("text_config");
  const bool multimodal = text != config.end() && text->is_object();
  const auto quantized = config.find("quantization_config");
  if (multimodal && quantized != config.end()) {
    IsAccountedFor("quantization_config", "quantization_config", *quantized);
  }
  for (const auto& member : (multimodal ? *text : config).items()) {
    if (!IsAccountedFor(member.key(), member.key(), member.value())) return;
  }
}

}  // namespace quire::runner::models
