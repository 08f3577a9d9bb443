#include "runner/engine/sentence_prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string_view>
#include <vector>

#include "api/base/ascii.h"
#include "runner/weights/json_text.h"

namespace quire::runner::engine {
namespace {

constexpr const char* kPromptsFile = "config_sentence_transformers.json";

using NameGroup = std::vector<std::string_view>;

const NameGroup& QueryNames() {
  static const NameGroup kNames = {"query", "search_query"};
  return kNames;
}

const NameGroup& DocumentNames() {
  static const NameGroup kNames = {"document", "passage", "search_document"};
  return kNames;
}

bool IsOneOf(const NameGroup& group, std::string_view name) {
  return std::ranges::find(group, name) != group.end();
}

}  // namespace

SentencePrompts::SentencePrompts(const std::string& text) {
  if (text.empty()) return;
  const auto config = weights::ParseJson(text, kPromptsFile);
  if (!config || !config->is_object()) {
    problem_ = config ? fmt::format("{}: not an object", kPromptsFile) : config.error().message;
    return;
  }
  const auto prompts = config->find("prompts");
  if (prompts == config->end() || prompts->is_null()) return;
  if (!prompts->is_object()) {
    problem_ = fmt::format("{}: prompts: not an object", kPromptsFile);
    return;
  }
  for (const auto& member : prompts->items()) {
    if (!member.value().is_string()) {
      problem_ = fmt::format("{}: a prompt is not a text", kPromptsFile);
      return;
    }
    prefixes_[api::AsciiLower(member.key())] = member.value().get<std::string>();
  }
}

api::Result<std::string> SentencePrompts::Find(const std::string& name, bool required) const {
  if (!problem_.empty()) return api::Fail(api::ErrorCode::kBadModel, problem_, "input_type");
  const std::string wanted = api::AsciiLower(name);
  NameGroup names = {wanted};
  for (const NameGroup* group : {&QueryNames(), &DocumentNames()}) {
    if (IsOneOf(*group, wanted)) names.insert(names.end(), group->begin(), group->end());
  }
  for (const std::string_view one : names) {
    const auto found = prefixes_.find(std::string(one));
    if (found != prefixes_.end()) return found->second;
  }
  const bool plain = !prefixes_.empty() && IsOneOf(DocumentNames(), wanted);
  if (!required || plain) return std::string();
  return api::Fail(
      api::ErrorCode::kUnsupported,
      fmt::format("input_type: the model's files define no prefix \"{}\"{}", name.substr(0, 64),
                  prefixes_.empty()
                      ? std::string()
                      : fmt::format("; they define {}", fmt::join(prefixes_ | std::views::keys, ", "))),
      "input_type");
}

}  // namespace quire::runner::engine
