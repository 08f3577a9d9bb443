#include "api/openai/unsupported_fields.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/openai/parts.h"

namespace quire::api::openai {
namespace {

using namespace std::string_view_literals;

// Of vLLM, SGLang, llama.cpp, text-generation-webui and TabbyAPI.
constexpr std::array kNames = {
    "guided_grammar"sv,
    "guided_whitespace_pattern"sv,
    "structural_tag"sv,
    "regex"sv,
    "ebnf"sv,
    "bad_words"sv,
    "allowed_token_ids"sv,
    "logits_processors"sv,
    "prompt_logprobs"sv,
    "truncate_prompt_tokens"sv,
    "use_beam_search"sv,
    "include_stop_str_in_output"sv,
    "chat_template"sv,
    "documents"sv,
};

// Numbers with the value that means "off".
using Off = std::pair<std::string_view, double>;
constexpr auto kNumbers = std::to_array<Off>({
    {"length_penalty"sv, 1.0},
    {"no_repeat_ngram_size"sv, 0.0},
    {"top_a"sv, 0.0},
    {"epsilon_cutoff"sv, 0.0},
    {"eta_cutoff"sv, 0.0},
    {"smoothing_factor"sv, 0.0},
    {"dynatemp_range"sv, 0.0},
    {"tfs"sv, 1.0},
});

constexpr std::array kOfStructuredOutputs = {"grammar"sv, "structural_tag"sv, "whitespace_pattern"sv};

bool MeansNothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

void RefuseIf(Fields& fields, std::string_view name, bool (*neutral)(const Json& value)) {
  const Json* value = fields.Find(name);
  if (value != nullptr && !neutral(*value))
    Refuse(fields, name, fmt::format("{}: not supported", fields.PathOf(name)));
}

}  // namespace

void RefuseUnsupported(Fields& body) {
  for (const std::string_view name : kNames) RefuseIf(body, name, MeansNothing);
  for (const auto& [name, off] : kNumbers) {
    const Json* value = body.Find(name);
    if (value != nullptr && !(value->is_number() && value->get<double>() == off))
      Refuse(body, name, fmt::format("{}: not supported", name));
  }
  RefuseIf(body, "skip_special_tokens", [](const Json& value) { return value == true; });
  if (const Json* outputs = body.FindObject("structured_outputs")) {
    Fields fields(*outputs, body.PathOf("structured_outputs"), body.error());
    for (const std::string_view name : kOfStructuredOutputs) RefuseIf(fields, name, MeansNothing);
  }
}

}  // namespace quire::api::openai
