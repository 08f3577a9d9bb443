#include "runner/tokenizer/config_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/base/parse_integer.h"
#include "runner/tokenizer/bpe.h"

namespace quire::runner::tokenizer {
namespace {

using nlohmann::ordered_json;

const ordered_json* Find(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string_view TextOf(const ordered_json* value) {
  if (value != nullptr && value->is_object()) value = Find(*value, "content");
  return value != nullptr && value->is_string() ? std::string_view(value->get_ref<const std::string&>())
                                                : std::string_view();
}

// From a string, or an object with flags. Nothing where that is no token.
std::optional<ConfigAddedToken> TokenOf(const ordered_json& value) {
  const std::string_view content = TextOf(&value);
  if (content.empty() || content.size() > kAddedTokenBytesMax) return std::nullopt;
  ConfigAddedToken added{.content = content,
                         .token = {.id = kNoToken, .content = std::string(content), .special = true}};
  const std::pair<const char*, bool*> flags[] = {{"special", &added.token.special},
                                                 {"normalized", &added.token.normalized},
                                                 {"lstrip", &added.token.lstrip},
                                                 {"rstrip", &added.token.rstrip},
                                                 {"single_word", &added.token.single_word}};
  for (const auto& [key, flag] : flags) {
    const ordered_json* set = Find(value, key);
    if (set != nullptr && set->is_boolean()) *flag = set->get<bool>();
  }
  return added;
}

}  // namespace

std::string_view ConfigToken(const ordered_json& config, const char* name) {
  return TextOf(Find(config, name));
}

std::vector<ConfigAddedToken> ConfigTokens(const ordered_json& config) {
  std::vector<ConfigAddedToken> tokens;
  const auto add = [&](const ordered_json& value, api::TokenId id, bool listed) {
    auto token = TokenOf(value);
    if (!token) return;
    token->token.id = id;
    token->listed = listed;
    tokens.push_back(*std::move(token));
  };
  const ordered_json* decoder = Find(config, "added_tokens_decoder");
  if (decoder != nullptr && decoder->is_object()) {
    for (const auto& [key, value] : decoder->items()) {
      const auto id = api::ParseInteger<api::TokenId>(key);
      if (id && *id >= 0) add(value, *id, true);
    }
    std::ranges::stable_sort(tokens, {}, [](const ConfigAddedToken& token) { return token.token.id; });
  }
  for (const char* name : kNamedTokens) {
    if (const ordered_json* value = Find(config, name); value != nullptr) add(*value, kNoToken, false);
  }
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    const ordered_json* values = Find(config, list);
    if (values == nullptr || !values->is_structured()) continue;
    for (const ordered_json& value : *values) add(value, kNoToken, true);
  }
  return tokens;
}

}  // namespace quire::runner::tokenizer
