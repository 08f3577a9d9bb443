#include "runner/tokenizer/published_markup.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "api/base/ascii.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;

// Nothing else is spelled like these.
constexpr auto kEndTexts = std::to_array<std::string_view>({
    "<|im_end|>",    "<|eot_id|>",         "<|eom_id|>",
    "<|endoftext|>", "<|end_of_text|>",    "<|end_of_turn|>",
    "<end_of_turn>", "<end_of_utterance>", "<turn|>",
    "<eos>",         "<|tool_response>",   "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "<|end|>",       "<|return|>",         "<|call|>",
    "<|calls|>",     "<|flush|>",          "[e~[",
    "<|fim_pad|>",   "<|fim_repo|>",       "<|repo_name|>",
    "<|file_sep|>",  "<fim_pad>",          "<fim-pad>",
    "<fim-repo>",
});
// Pieces of ordinary text in some vocabularies.
constexpr auto kEndTextsIfSpecial = std::to_array<std::string_view>({
    "</s>",
    "<EOT>",
    "_<EOT>",
    "\u2581<EOT>",
    "[EOT]",
    "[EOS]",
    "<PAD>",
    "[PAD]",
    "<REPO>",
    "<reponame>",
});

bool Contains(std::span<const std::string_view> texts, std::string_view text) {
  return std::ranges::find(texts, text) != texts.end();
}

}  // namespace

bool IsControlText(std::string_view text) {
  return Contains(kEndTexts, text) ||
         std::ranges::any_of(kFimSpellings, [&](const auto& spelling) { return Contains(spelling, text); });
}

StripRules StripRules::Of(const nlohmann::ordered_json& key_values) {
  const auto value = [&](const char* key) {
    const auto found = key_values.is_object() ? key_values.find(key) : key_values.end();
    const bool text = found != key_values.end() && found->is_string();
    return text ? api::AsciiLower(found->get_ref<const std::string&>()) : std::string();
  };
  const auto contains = [](const std::string& text, std::initializer_list<const char*> parts) {
    return std::ranges::any_of(parts, [&](const char* part) { return text.find(part) != text.npos; });
  };
  const std::string name = value("general.name"), architecture = value("general.architecture");
  const std::string pre = value("tokenizer.ggml.pre");
  if (contains(pre, {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
      contains(architecture, {"nomic-bert-moe", "jina-bert-v3"})) {
    return {.before_token = "<mask>"};
  }
  if (contains(name, {"phi-3", "phi3"})) return {.behind_all = true};
  if (contains(name, {"modern-bert"}) || architecture == "modern-bert") return {.before_token = "[MASK]"};
  return {};
}

std::vector<TokenId> EndsOf(const Vocabulary& vocabulary) {
  std::vector<TokenId> ends;
  std::map<std::string_view, TokenId> found;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.Bytes(id);
    if (text.empty() || (text.front() != '<' && text.front() != '[' && !vocabulary.IsSpecial(id))) continue;
    if (!Contains(kEndTexts, text) && !(vocabulary.IsSpecial(id) && Contains(kEndTextsIfSpecial, text)))
      continue;
    ends.push_back(id);
    found.emplace(text, id);
  }
  // Harmony and Solar Open close each channel of a turn with <|end|>.
  const auto has = [&](std::string_view text) { return found.contains(text); };
  const bool channels = (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>"));
  if (channels && has("<|end|>")) std::erase(ends, found.at("<|end|>"));
  return ends;
}

}  // namespace quire::runner::tokenizer
