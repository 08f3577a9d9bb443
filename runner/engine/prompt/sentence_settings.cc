#include "runner/engine/prompt/sentence_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string_view>
#include <vector>

#include "api/base/ascii.h"
#include "runner/models/encoder.h"
#include "runner/models/rank_head.h"
#include "runner/models/sentence_pooling.h"
#include "runner/tokenizer/bert_text.h"
#include "runner/weights/json_text.h"

namespace quire::runner::engine {
namespace {

using FileJson = nlohmann::ordered_json;

constexpr const char* kPromptsFile = "config_sentence_transformers.json";
constexpr const char* kTransformerFile = "sentence_bert_config.json";
constexpr const char* kNoPrompt = "none";
constexpr int32_t kTextTokensMin = 3;  // a token between BOS and EOS

// Reads a JSON number, which may be far beyond what an integer holds ("no limit"); 0: no limit.
int32_t TextLengthOf(const FileJson& number) {
  const double length = number.get<double>();
  return length >= kTextTokensMin && length < INT32_MAX ? static_cast<int32_t>(length) : 0;
}

using NameGroup = std::vector<std::string_view>;

const NameGroup& QueryNames() {
  static const NameGroup kNames = {"query", "search_query", "retrieval.query", "retrieval_query"};
  return kNames;
}

const NameGroup& DocumentNames() {
  static const NameGroup kNames = {"document", "passage", "search_document", "retrieval.passage",
                                   "retrieval_document"};
  return kNames;
}

bool IsOneOf(const NameGroup& group, std::string_view name) {
  return std::ranges::find(group, name) != group.end();
}

}  // namespace

SentenceSettings::SentenceSettings(const std::string& prompts, const std::string& transformer,
                                   int32_t model_max_length)
    : tokens_max_(model_max_length) {
  if (!prompts.empty()) ReadPrompts(prompts);
  if (!transformer.empty()) ReadTransformer(transformer);
}

SentenceSettings SentenceSettings::Of(const weights::ModelFiles& files) {
  const auto modules = files.sentence_modules();
  const bool embeds = models::IsEncoder(files) || models::IsSavedWithoutHead(files) ||
                      models::RanksByAnswer(files) || (modules && !modules->empty());
  const auto length = files.tokenizer_config().find("model_max_length");
  const bool limited = embeds && length != files.tokenizer_config().end() && length->is_number();
  return SentenceSettings(files.sentence_prompts(), files.sentence_config(),
                          limited ? TextLengthOf(*length) : 0);
}

void SentenceSettings::ReadPrompts(const std::string& text) {
  const auto config = weights::ParseJson(text, kPromptsFile);
  if (!config || !config->is_object()) {
    problem_ = config ? fmt::format("{}: not an object", kPromptsFile) : config.error().message;
    return;
  }
  const FileJson prompts = config->value("prompts", FileJson()),
                 name = config->value("default_prompt_name", FileJson());
  if (!prompts.is_object() && !prompts.is_null()) {
    problem_ = fmt::format("{}: prompts: not an object", kPromptsFile);
    return;
  }
  for (const auto& member : prompts.items()) {
    if (!member.value().is_string() && !member.value().is_null()) {
      problem_ = fmt::format("{}: a prompt is not a text", kPromptsFile);
      return;
    }
    prefixes_[api::AsciiLower(member.key())] =
        member.value().is_null() ? "" : member.value().get<std::string>();
  }
  if (name.is_null() || (name.is_string() && name.get_ref<const std::string&>().empty())) return;
  const auto found =
      name.is_string() ? prefixes_.find(api::AsciiLower(name.get<std::string>())) : prefixes_.end();
  if (found == prefixes_.end()) {
    problem_ = fmt::format("{}: default_prompt_name: not the name of a prompt", kPromptsFile);
    return;
  }
  default_prefix_ = found->second;
}

void SentenceSettings::ReadTransformer(const std::string& text) {
  const auto config = weights::ParseJson(text, kTransformerFile);
  if (!config || !config->is_object()) {
    problem_ = config ? fmt::format("{}: not an object", kTransformerFile) : config.error().message;
    return;
  }
  const FileJson lowercase = config->value("do_lower_case", FileJson()),
                 length = config->value("max_seq_length", FileJson());
  if (!lowercase.is_boolean() && !lowercase.is_null()) {
    problem_ = fmt::format("{}: do_lower_case: not true or false", kTransformerFile);
    return;
  }
  if (!length.is_null() && (!length.is_number() || length.get<double>() < kTextTokensMin)) {
    problem_ =
        fmt::format("{}: max_seq_length: not a number of tokens from {}", kTransformerFile, kTextTokensMin);
    return;
  }
  lowercase_ = lowercase == true;
  if (!length.is_null()) tokens_max_ = TextLengthOf(length);
}

api::Result<void> SentenceSettings::Check() const {
  if (!problem_.empty()) return api::Fail(api::ErrorCode::kBadModel, problem_);
  return {};
}

std::string SentenceSettings::Normalize(std::string_view text) const {
  if (!lowercase_) return std::string(text);
  constexpr tokenizer::BertText kLower{
      .clean = false, .isolate_han = false, .strip_accents = false, .lowercase = true};
  return kLower.Apply(text);
}

int32_t SentenceSettings::TokensMax(int32_t num_ctx) const {
  return tokens_max_ > 0 ? std::min(num_ctx, tokens_max_) : num_ctx;
}

api::Result<std::string> SentenceSettings::Prefix(const std::string& name, bool required) const {
  if (auto usable = Check(); !usable) return std::unexpected(usable.error());
  if (name.empty()) return default_prefix_;
  const std::string wanted = api::AsciiLower(name);
  NameGroup names = {wanted};
  for (const NameGroup* group : {&QueryNames(), &DocumentNames()}) {
    if (IsOneOf(*group, wanted)) names.insert(names.end(), group->begin(), group->end());
  }
  for (const std::string_view one : names) {
    const auto found = prefixes_.find(std::string(one));
    if (found != prefixes_.end()) return found->second;
  }
  // A model that has none takes all texts alike.
  const bool plain = wanted == kNoPrompt || prefixes_.empty() || IsOneOf(DocumentNames(), wanted);
  if (!required || plain) return std::string();
  return api::Fail(
      api::ErrorCode::kUnsupported,
      fmt::format("input_type: the model's files define no prefix \"{}\"{}", name.substr(0, 64),
                  fmt::format("; they define {}", fmt::join(prefixes_ | std::views::keys, ", "))),
      "input_type");
}

}  // namespace quire::runner::engine
