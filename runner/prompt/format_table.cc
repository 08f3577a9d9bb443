#include "runner/prompt/format_table.h"

#include <algorithm>
#include <array>

namespace quire::runner {
namespace {

constexpr std::string_view kOlmo =
    "{%- set by_default = 'You are Olmo, a helpful AI assistant built by Ai2. Your date cutoff is December "
    "2024, and your "
    "model weights are available at https://huggingface.co/allenai.' -%}";

constexpr auto kRenderers = std::to_array<NamedFormat>({
    {"cogito", "cogito"},
    {"cohere", "cohere"},
    {"deepseek3.1", "deepseek3.1"},
    {"functiongemma", "functiongemma"},
    {"gemma4", "gemma4"},
    {"gemma4-large", "gemma4", "{%- set large = true -%}"},
    {"gemma4-small", "gemma4"},
    {"glm-4.7", "glm-4.7"},
    {"glm-ocr", "glm-ocr"},
    {"laguna", "laguna"},
    {"lfm2", "lfm2"},
    {"lfm2-thinking", "lfm2", "{%- set thinks = '<think>' -%}"},
    {"nemotron-3-nano", "nemotron3"},
    {"nemotron-3.5-nano", "nemotron3",
     "{%- set v35 = true -%}{%- set medium = reasoning_effort | default('') == 'medium' -%}"},
    {"olmo3", "olmo3", "{%- set by_default = 'You are a helpful function-calling AI assistant.' -%}"},
    {"olmo3-32b-think", "olmo3-think", "{%- set by_default = 'You are a helpful AI assistant.' -%}"},
    {"olmo3-think", "olmo3-think", kOlmo},
    {"olmo3.1", "olmo3", kOlmo},
    {"ornith", "qwen3.5", "{%- set keep = true -%}"},
    {"poolside-v1", "laguna", "{%- set tight = true -%}"},
    {"qwen3-coder", "qwen3-coder"},
    {"qwen3-vl-instruct", "qwen3"},
    {"qwen3-vl-thinking", "qwen3", "{%- set opening = '<think>' -%}{%- set opens = true -%}"},
    {"qwen3.5", "qwen3.5"},
    {"qwen3.8", "qwen3.5",
     "{%- set keep = true -%}{%- set effort_level = reasoning_effort | default('high') -%}"},
});

constexpr auto kFamilies = std::to_array<NamedFormat>({
    {"chatml", "chatml"},
    {"command-r", "command-r"},
    {"command-r7b", "command-r7b"},
    {"deepseek-r1", "deepseek3", "{%- set thinks = '<think>\\n' -%}"},
    {"deepseek3", "deepseek3"},
    {"deepseek3.1", "deepseek3.1"},
    {"functiongemma", "functiongemma"},
    {"gemma3", "gemma3"},
    {"gemma4", "gemma4"},
    {"gemma4-large", "gemma4", "{%- set large = true -%}"},
    {"gpt-oss", "gpt-oss"},
    {"granite3", "granite3"},
    {"granite4", "granite4"},
    {"lfm2", "lfm2"},
    {"llama3", "llama3"},
    {"mistral-v11", "mistral",
     "{%- set content_mark = '[TOOL_CONTENT]' -%}{%- set id_mark = '[CALL_ID]' -%}{%- set mark = '[ARGS]' "
     "-%}"},
    {"mistral-v13", "mistral", "{%- set mark = '[ARGS]' -%}"},
    {"mistral-v3", "mistral"},
    {"mistral-v3-spm", "mistral", "{%- set space = ' ' -%}"},
    {"mistral-v7", "mistral", "{%- set content_mark = '[TOOL_CONTENT]' -%}"},
    {"mistral-v7-spm", "mistral", "{%- set content_mark = '[TOOL_CONTENT]' -%}{%- set space = ' ' -%}"},
    {"phi3", "phi3"},
    {"phi4", "phi4"},
    {"phi4-mini", "phi4-mini"},
    {"qwen3", "qwen3", "{%- set opening = '<think>' -%}"},
    {"qwen3.5", "qwen3.5"},
});

// Where no format of ours has the markup, the marks by which answers are known.
constexpr auto kParsers = std::to_array<NamedFormat>({
    {"cogito", "cogito"},
    {"cohere", "cohere"},
    {"deepseek3", "deepseek3.1"},
    {"functiongemma", "functiongemma"},
    {"gemma4", "gemma4"},
    {"gemma4-no-thinking", "", "tools <|tool_call>"},
    {"glm-4.7", "glm-4.7"},
    {"glm-ocr", "glm-ocr"},
    {"harmony", "", "tools <|channel|>"},
    {"laguna", "laguna"},
    {"lfm2", "lfm2"},
    {"lfm2-thinking", "lfm2", "{%- set thinks = '<think>' -%}"},
    {"ministral", "", "tools [TOOL_CALLS] [ARGS]"},
    {"nemotron-3-nano", "nemotron3"},
    {"nemotron-3.5-nano", "nemotron3"},
    {"olmo3", "olmo3"},
    {"olmo3-think", "olmo3-think"},
    {"ornith", "qwen3.5"},
    {"passthrough", ""},
    {"poolside-v1", "laguna"},
    {"qwen3", "qwen3"},
    {"qwen3-coder", "qwen3-coder"},
    {"qwen3-thinking", "qwen3", "{%- set opening = '<think>' -%}"},
    {"qwen3-vl-instruct", "qwen3"},
    {"qwen3-vl-thinking", "qwen3", "{%- set opening = '<think>' -%}"},
    {"qwen3.5", "qwen3.5"},
});

}  // namespace

std::span<const NamedFormat> RendererFormats() { return kRenderers; }
std::span<const NamedFormat> FamilyFormats() { return kFamilies; }
std::span<const NamedFormat> ParserFormats() { return kParsers; }

const NamedFormat* FindFormat(std::span<const NamedFormat> formats, std::string_view name) {
  const auto found = std::ranges::find(formats, name, &NamedFormat::name);
  return found == formats.end() ? nullptr : &*found;
}

std::string TemplateOf(const NamedFormat& format) {
  const auto texts = AllFormatTexts();
  const auto found = std::ranges::find(texts, format.file, &FormatText::file);
  return std::string(format.settings) + std::string(found == texts.end() ? std::string_view() : found->text);
}

}  // namespace quire::runner
