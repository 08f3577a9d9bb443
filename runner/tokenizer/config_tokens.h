// The tokens that tokenizer_config.json names.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "runner/tokenizer/added_tokens.h"

namespace quire::runner::tokenizer {

inline constexpr auto kNamedTokens = std::to_array<const char*>(
    {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"});

// The text of one of them: a string, or an object with a "content". Empty: none. The view lives as long as
// `config`.
std::string_view ConfigToken(const nlohmann::ordered_json& config, const char* name);

struct ConfigAddedToken {
  std::string_view content;  // not empty; lives as long as the configuration
  AddedToken token;          // with that content
  bool listed = false;       // in a list of added tokens; else only a role (as "pad_token") names it
};

// In the order in which transformers adds them: "added_tokens_decoder" by its ids, the roles, and the lists
// of more special tokens. Entries that are no tokens are left out. Only those of the first have an id, the
// others kNoToken.
std::vector<ConfigAddedToken> ConfigTokens(const nlohmann::ordered_json& config);

}  // namespace quire::runner::tokenizer
