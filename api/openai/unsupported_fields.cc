#include "api/openai/unsupported_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "api/openai/parts.h"

namespace quire::api::openai {
namespace {

using namespace std::string_view_literals;
using Names = std::span<const std::string_view>;

// Fields of vLLM, SGLang, llama.cpp, text-generation-webui, TabbyAPI, text-generation-inference, OpenRouter
// and Ollama. Nothing is asked for with null, false, "", [] and {}.
constexpr auto kNames = std::to_array<std::string_view>({"adapter_id",
                                                         "allowed_token_ids",
                                                         "audio",
                                                         "bad_words",
                                                         "bad_words_ids",
                                                         "ban_eos_token",
                                                         "banned_strings",
                                                         "banned_tokens",
                                                         "begin_suppress_tokens",
                                                         "chat_template",
                                                         "control_vectors",
                                                         "custom_logit_processor",
                                                         "custom_params",
                                                         "custom_token_bans",
                                                         "decoder_input_details",
                                                         "documents",
                                                         "dynamic_temperature",
                                                         "ebnf",
                                                         "forced_bos_token_id",
                                                         "forced_eos_token_id",
                                                         "grammar_lazy",
                                                         "grammar_string",
                                                         "grammar_triggers",
                                                         "guided_grammar",
                                                         "guided_whitespace_pattern",
                                                         "image_data",
                                                         "images",
                                                         "include_stop_str_in_output",
                                                         "input_embeds",
                                                         "input_ids",
                                                         "kv_transfer_params",
                                                         "logits_processors",
                                                         "lora",
                                                         "lora_path",
                                                         "lora_request",
                                                         "models",
                                                         "multimodal_data",
                                                         "negative_prompt",
                                                         "no_stop_trim",
                                                         "penalty_range",
                                                         "plugins",
                                                         "post_sampling_probs",
                                                         "prompt_embeds",
                                                         "regex_pattern",
                                                         "repetition_penalty_range",
                                                         "return_full_text",
                                                         "return_hidden_states",
                                                         "return_token_ids",
                                                         "return_tokens_as_token_ids",
                                                         "session_params",
                                                         "stop_regex",
                                                         "stop_sequences",
                                                         "stop_strings",
                                                         "structural_tag",
                                                         "suppress_tokens",
                                                         "system_prompt",
                                                         "token_healing",
                                                         "transforms",
                                                         "truncate",
                                                         "truncate_prompt_tokens",
                                                         "use_beam_search",
                                                         "vllm_xargs",
                                                         "watermark"});

// Numbers with the values that mean "off".
struct Off {
  std::string_view name;
  double min, max;
};
constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr auto kNumbers = std::to_array<Off>({
    {"adaptive_target"sv, -kAny, -1e-9},
    {"cfg_scale"sv, 1, 1},
    {"dynatemp_range"sv, -kAny, 0},
    {"encoder_repetition_penalty"sv, 1, 1},
    {"epsilon_cutoff"sv, 0, 0},
    {"eta_cutoff"sv, 0, 0},
    {"guidance_scale"sv, 1, 1},
    {"length_penalty"sv, 1, 1},
    {"min_keep"sv, -kAny, 1},
    {"min_length"sv, -kAny, 0},
    {"min_new_tokens"sv, -kAny, 0},
    {"mirostat_mode"sv, 0, 0},
    {"no_repeat_ngram_size"sv, 0, 0},
    {"nsigma"sv, -kAny, 0},
    {"num_beams"sv, -kAny, 1},
    {"num_return_sequences"sv, 1, 1},
    {"penalty_alpha"sv, 0, 0},
    {"skew"sv, 0, 0},
    {"smoothing_factor"sv, 0, 0},
    {"tfs"sv, 1, kAny},
    {"tfs_z"sv, 1, kAny},
    {"top_a"sv, 0, 0},
    {"typical"sv, 1, kAny},
});

// Switches that are on here.
constexpr auto kOnOnly = std::to_array<std::string_view>(
    {"do_sample", "parse_tool_calls", "separate_reasoning", "skip_special_tokens"});

// What some routes have and these do not.
constexpr auto kOfChats = std::to_array<std::string_view>(
    {"add_generation_prompt", "chat_template_kwargs", "continue_final_message", "enable_thinking",
     "include_reasoning", "max_thinking_tokens", "messages", "reasoning", "reasoning_effort",
     "reasoning_format", "think", "thinking", "thinking_budget", "thinking_budget_tokens",
     "thinking_token_budget", "tools"});
constexpr auto kOfPrompts = std::to_array<std::string_view>(
    {"add_special_tokens", "context", "echo", "raw", "suffix", "system", "template"});
constexpr auto kOfLlamaServer =
    std::to_array<std::string_view>({"input_extra", "input_prefix", "input_suffix", "return_tokens"});
constexpr auto kLlamaServerNumbers =
    std::to_array<Off>({{"n_indent"sv, -kAny, 0}, {"n_probs"sv, -kAny, 0}, {"t_max_predict_ms"sv, -kAny, 0}});
constexpr auto kNoLogprobs = std::to_array<std::string_view>({"logprobs"});
constexpr auto kNoPromptLogprobs = std::to_array<std::string_view>({"prompt_logprobs"});
constexpr auto kNoProgress = std::to_array<std::string_view>({"return_progress"});
constexpr auto kOneChoice = std::to_array<Off>({{"n"sv, 1, 1}, {"best_of"sv, 1, 1}});
constexpr auto kNoTopLogprobs = std::to_array<Off>({{"top_logprobs"sv, 0, 0}});
// Fields of vLLM's, NVIDIA's, Cohere's and Jina's embedding servers: each gives another vector.
constexpr auto kOfEmbeddings = std::to_array<std::string_view>(
    {"instruction", "late_chunking", "messages", "pooling", "prompt_name", "truncate_prompt_tokens"});

constexpr auto kOfStructuredOutputs =
    std::to_array<std::string_view>({"structural_tag", "whitespace_pattern"});

// They change no answer. docs/api.md lists them.
constexpr auto kHarmless = std::to_array<std::string_view>({"adaptive_decay",
                                                            "background",
                                                            "cache_prompt",
                                                            "cache_control",
                                                            "dynatemp_exponent",
                                                            "dynatemp_high",
                                                            "dynatemp_low",
                                                            "guided_decoding_backend",
                                                            "id_slot",
                                                            "include",
                                                            "max_tool_calls",
                                                            "metadata",
                                                            "mm_processor_kwargs",
                                                            "n_cache_reuse",
                                                            "n_discard",
                                                            "n_keep",
                                                            "prediction",
                                                            "preserved_tokens",
                                                            "priority",
                                                            "prompt_cache_key",
                                                            "prompt_cache_retention",
                                                            "provider",
                                                            "request_id",
                                                            "response_fields",
                                                            "rid",
                                                            "route",
                                                            "safety_identifier",
                                                            "service_tier",
                                                            "smoothing_curve",
                                                            "spaces_between_special_tokens",
                                                            "speculative.n_max",
                                                            "speculative.n_min",
                                                            "speculative.p_min",
                                                            "sse_ping_interval",
                                                            "store",
                                                            "stream_reasoning",
                                                            "t_max_prompt_ms",
                                                            "timings_per_token",
                                                            "user"});

bool MeansNothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

void RefuseName(Fields& fields, std::string_view name) {
  Refuse(fields, name, fmt::format("{}: not supported", fields.PathOf(name)));
}

void RefuseNames(Fields& fields, Names names) {
  for (const std::string_view name : names) {
    const Json* value = fields.Find(name);
    if (value != nullptr && !MeansNothing(*value)) RefuseName(fields, name);
  }
}

void RefuseNumbers(Fields& fields, std::span<const Off> numbers) {
  for (const auto& [name, min, max] : numbers) {
    const Json* value = fields.Find(name);
    if (value == nullptr) continue;
    const bool off = value->is_number() && value->get<double>() >= min && value->get<double>() <= max;
    if (!off) RefuseName(fields, name);
  }
}

void RefuseOfResponses(Fields& body) {
  RefuseNames(body, kNoLogprobs);
  RefuseNames(body, kNoProgress);
  RefuseNumbers(body, kOneChoice);
  RefuseNumbers(body, kNoTopLogprobs);
  const Json* include = body.FindArray("include");
  if (include != nullptr && std::ranges::find(*include, "message.output_text.logprobs") != include->end())
    Refuse(body, "include", "include: message.output_text.logprobs is not supported");
}

void RefuseOfRoute(Fields& body, Route route) {
  if (route != Route::kLlamaServer) {
    RefuseNames(body, kOfLlamaServer);
    RefuseNumbers(body, kLlamaServerNumbers);
  }
  if (route == Route::kChat || route == Route::kResponses) RefuseNames(body, kOfPrompts);
  if (route == Route::kCompletions || route == Route::kLlamaServer) RefuseNames(body, kOfChats);
  if (route == Route::kCompletions) RefuseNumbers(body, kNoTopLogprobs);
  if (route == Route::kResponses || route == Route::kLlamaServer) RefuseNames(body, kNoPromptLogprobs);
  if (route == Route::kResponses) RefuseOfResponses(body);
}

}  // namespace

void RefuseUnsupported(Fields& body, Route route) {
  if (route == Route::kEmbeddings) return RefuseNames(body, kOfEmbeddings);
  RefuseOfRoute(body, route);
  RefuseNames(body, kNames);
  RefuseNumbers(body, kNumbers);
  for (const std::string_view name : kOnOnly) {
    const Json* value = body.Find(name);
    if (value != nullptr && *value != true) RefuseName(body, name);
  }
  if (const Json* outputs = body.FindObject("structured_outputs")) {
    Fields fields(*outputs, body.PathOf("structured_outputs"), body.error());
    RefuseNames(fields, kOfStructuredOutputs);
  }
}

void AddUnread(const Fields& body, std::vector<std::string>& unknown) { body.AddUnread(kHarmless, unknown); }

}  // namespace quire::api::openai
