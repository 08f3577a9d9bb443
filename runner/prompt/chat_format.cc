#include "runner/prompt/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "api/base/ascii.h"
#include "runner/prompt/format_table.h"

namespace quire::runner {
namespace {

constexpr std::string_view kWhatToDo =
    "give the model a TEMPLATE in a Modelfile, or complete text with /api/generate or /v1/completions";

// The format of an architecture whose vocabulary has these tokens. The first line that fits counts.
struct FamilyRule {
  std::string_view architecture;  // what its name begins with
  std::string_view token, second_token;
  std::string_view format;  // of FamilyFormats()
  std::string_view shown;
  // The vocabularies of relatives that are spoken to otherwise have one of these.
  std::array<std::string_view, 2> lacks = {};
  // Where vocabularies are the same: a part of the model's name, in lower case, that must be there, or must
  // not.
  std::string_view named = {};
  std::array<std::string_view, 2> not_named = {};
};
constexpr auto kFamilyRules = std::to_array<FamilyRule>({
    {"gemma4", "<|turn>", "<turn|>", "gemma4", "Gemma 4"},
    {"gemma3", "<start_function_call>", "<end_of_turn>", "functiongemma", "FunctionGemma"},
    {"gemma", "<start_of_turn>", "<end_of_turn>", "gemma3", "Gemma 3"},
    {"deepseek", "<｜Assistant｜>", "<｜search▁begin｜>", "deepseek3.1", "DeepSeek V3.1"},
    {"deepseek", "<｜Assistant｜>", "<think>", "deepseek-r1", "DeepSeek R1"},
    {"deepseek", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "deepseek3", "DeepSeek V3"},
    {"llama", "<｜Assistant｜>", "<think>", "deepseek-r1", "DeepSeek R1"},  // distilled
    {"qwen2", "<｜Assistant｜>", "<think>", "deepseek-r1", "DeepSeek R1"},
    {"gpt", "<|start|>", "<|channel|>", "gpt-oss", "gpt-oss"},
    {"granitehybrid", "<|start_of_role|>", "<|end_of_role|>", "granite4", "Granite 4"},
    {"granitemoehybrid", "<|start_of_role|>", "<|end_of_role|>", "granite4", "Granite 4"},
    {"granite", "<|start_of_role|>", "<|start_of_cite|>", "granite3", "Granite 3"},
    // Later dense models have another system text.
    {"granite", "<|start_of_role|>", "<tool_call>", "granite4", "Granite 4", {}, {}, {"4.1", "4.2"}},
    {"phi3", "<|user|>", "<|end|>", "phi3", "Phi-3", {"<|tool|>", "<|im_sep|>"}},
    // Models that reason have a system text of their own.
    {"phi3", "<|im_start|>", "<|im_sep|>", "phi4", "Phi-4", {"<think>"}, {}, {"reasoning"}},
    {"phi3", "<|tool|>", "<|end|>", "phi4-mini", "Phi-4 mini", {"<|im_sep|>"}, {}, {"reasoning"}},
    // Command A has the same vocabulary.
    {"cohere2", "<|START_OF_TURN_TOKEN|>", "<|START_RESPONSE|>", "command-r7b", "Command R7B", {}, "r7b"},
    {"command-r",
     "<|START_OF_TURN_TOKEN|>",
     "<|CHATBOT_TOKEN|>",
     "command-r",
     "Command R",
     {"<|START_RESPONSE|>"}},
    {"cohere",
     "<|START_OF_TURN_TOKEN|>",
     "<|CHATBOT_TOKEN|>",
     "command-r",
     "Command R",
     {"<|START_RESPONSE|>"}},
    // Versions of Mistral's: those of SentencePiece have blanks at other places. 11 and 13 may have the same
    // tokens.
    {"", "[INST]", "[CALL_ID]", "mistral-v11", "Mistral v11", {"[THINK]"}, "2506"},
    {"", "[INST]", "[ARGS]", "mistral-v13", "Mistral v13"},
    {"llama", "[TOOL_CONTENT]", "▁the", "mistral-v7-spm", "Mistral v7"},
    {"mistral", "[TOOL_CONTENT]", "▁the", "mistral-v7-spm", "Mistral v7"},
    {"llama", "[INST]", "[TOOL_CONTENT]", "mistral-v7", "Mistral v7"},
    {"mistral", "[INST]", "[TOOL_CONTENT]", "mistral-v7", "Mistral v7"},
    {"llama", "[AVAILABLE_TOOLS]", "▁the", "mistral-v3-spm", "Mistral v3", {"[SYSTEM_PROMPT]"}},
    {"mistral", "[AVAILABLE_TOOLS]", "▁the", "mistral-v3-spm", "Mistral v3", {"[SYSTEM_PROMPT]"}},
    {"llama", "[INST]", "[AVAILABLE_TOOLS]", "mistral-v3", "Mistral v3", {"[SYSTEM_PROMPT]"}},
    {"mistral", "[INST]", "[AVAILABLE_TOOLS]", "mistral-v3", "Mistral v3", {"[SYSTEM_PROMPT]"}},
    {"llama", "<|start_header_id|>", "<|eot_id|>", "llama3", "Llama 3"},
    {"lfm2", "<|im_start|>", "<|tool_call_start|>", "lfm2", "LFM2"},
    {"qwen35", "<|im_start|>", "<tool_call>", "qwen3.5", "Qwen3.5"},
    {"qwen3_5", "<|im_start|>", "<tool_call>", "qwen3.5", "Qwen3.5"},
    {"qwen3", "<tool_call>", "<think>", "qwen3", "Qwen3"},
    {"", "<|im_start|>", "<|im_end|>", "chatml", "ChatML", {"<|im_sep|>"}},
});

// Whether a name says that the model was tuned for chat: "gemma-3-1b-it", "Instruct".
bool TellsChat(std::string_view name) {
  constexpr auto kWords = std::to_array<std::string_view>({"it", "instruct", "chat", "thinking"});
  std::string word;
  for (size_t i = 0; i <= name.size(); ++i) {
    const char c = i < name.size() ? name[i] : ' ';
    if (api::IsAsciiAlnum(c)) {
      word += api::AsciiLower(c);
    } else {
      if (std::ranges::find(kWords, word) != kWords.end()) return true;
      word.clear();
    }
  }
  return false;
}

template <typename Tells>
bool AnyNameOf(const weights::ModelFiles& files, const Tells& tells) {
  const auto& config = files.config();
  if (!config.is_object()) return false;
  constexpr auto kKeys = std::to_array<const char*>(
      {"general.finetune", "general.name", "general.basename", "general.version", "_name_or_path"});
  return std::ranges::any_of(kKeys, [&](const char* key) {
    const auto value = config.find(key);
    return value != config.end() && value->is_string() && tells(value->get_ref<const std::string&>());
  });
}

bool IsNamed(const weights::ModelFiles& files, std::string_view part) {
  return !part.empty() && AnyNameOf(files, [&](const std::string& name) {
    return api::AsciiLower(name).find(part) != std::string::npos;
  });
}

// Gemma 4's large models differ in one turn; the small ones have embeddings of each layer.
std::string_view VariantOf(std::string_view format, const weights::ModelFiles& files) {
  if (format != "gemma4" || !files.config().is_object()) return format;
  for (const char* key : {"gemma4.embedding_length_per_layer_input", "hidden_size_per_layer_input"}) {
    const auto found = files.config().find(key);
    if (found != files.config().end() && found->is_number() && found->get<double>() > 0) return format;
  }
  return "gemma4-large";
}

void ChooseByFamily(const weights::ModelFiles& files, const std::function<bool(std::string_view)>& has_token,
                    ChatFormat& format) {
  const std::string architecture = files.architecture();
  for (const FamilyRule& rule : kFamilyRules) {
    if (!architecture.starts_with(rule.architecture)) continue;
    if (!has_token(rule.token) || !has_token(rule.second_token)) continue;
    const bool other = std::ranges::any_of(
        rule.lacks, [&](std::string_view token) { return !token.empty() && has_token(token); });
    const bool named = rule.named.empty() || IsNamed(files, rule.named);
    if (other || !named) continue;
    if (std::ranges::any_of(rule.not_named, [&](std::string_view part) { return IsNamed(files, part); }))
      continue;
    format.source = TemplateOf(*FindFormat(FamilyFormats(), VariantOf(rule.format, files)));
    format.of_family = true;
    const bool sure = !rule.architecture.empty() && AnyNameOf(files, TellsChat);
    format.notes.push_back(
        fmt::format("no chat template: using the {} format{}", rule.shown,
                    sure ? " of the family" : ", guessed from the vocabulary; a TEMPLATE replaces it"));
    return;
  }
  format.refusal = fmt::format("the model has no chat template, and no known format fits; {}", kWhatToDo);
  format.notes.push_back("no chat template, and no known format fits: text is completed, chats are refused");
}

}  // namespace

ChatFormat ChooseChatFormat(const weights::ModelFiles& files, const api::ipc::PromptNames& names,
                            bool go_template, const std::function<bool(std::string_view)>& has_token) {
  ChatFormat format;
  format.source = files.chat_template();
  const bool own = !format.source.empty();
  if (own || go_template) {
    // The template is there.
  } else if (names.renderer.empty()) {
    ChooseByFamily(files, has_token, format);
  } else if (const NamedFormat* known = FindFormat(RendererFormats(), names.renderer); known != nullptr) {
    format.source = TemplateOf(*known);
    format.of_family = true;
    format.notes.push_back(fmt::format("no chat template: using the format of RENDERER {}", names.renderer));
  } else {
    format.refusal = fmt::format("this version has no prompt format for the model's RENDERER \"{}\"; {}",
                                 names.renderer, kWhatToDo);
    format.notes.push_back(fmt::format(
        "RENDERER {} is not known, and there is no chat template: text is completed, chats are refused",
        names.renderer));
  }
  if (own || names.parser.empty()) return format;
  if (const NamedFormat* known = FindFormat(ParserFormats(), names.parser); known != nullptr) {
    format.answers = TemplateOf(*known);
    format.plain_answers = format.answers.empty();
  } else {
    format.notes.push_back(
        fmt::format("PARSER {} is not known: answers are read as the template shows", names.parser));
  }
  return format;
}

}  // namespace quire::runner
