// Texts that are markup in the published model families. Files often give these tokens another type, or name
// only one of several ends; the text decides, in GGUF files and directories alike.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "runner/tokenizer/vocabulary.h"

namespace quire::runner::tokenizer {

// Prefix, suffix and middle of fill-in-the-middle prompts, by family.
inline constexpr auto kFimSpellings = std::to_array<std::array<std::string_view, 3>>({
    {"<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>"},
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},
});
inline constexpr auto kFimRepositoryTexts = std::to_array<std::string_view>(
    {"<|repo_name|>", "<|fim_repo|>", "<|reponame|>", "<reponame>", "<repo_name>", "<|fim_repo_name|>"});
inline constexpr auto kFimFileTexts = std::to_array<std::string_view>(
    {"<|file_sep|>", "<|file_separator|>", "<|filename|>", "<file_sep>", "<filename>"});

// Whether a token of this text is a control token, whatever its type.
bool IsControlText(std::string_view text);

// The tokens whose texts end an answer, ascending: ends of turns and texts, and what begins another file
// behind a fill-in-the-middle answer. Words such as "</s>" are ends as special tokens only. Where the family
// closes a part of a turn with "<|end|>", that is no end.
std::vector<api::TokenId> EndsOf(const Vocabulary& vocabulary);

// Which white space beside a token belongs to it. GGUF files do not say; llama.cpp knows it by the model's
// name.
struct StripRules {
  std::string_view before_token = {};  // the one that takes the white space before it; empty: none
  bool behind_all = false;             // most tokens take the white space behind them

  static StripRules Of(const nlohmann::ordered_json& key_values);
  bool Before(std::string_view token) const { return !token.empty() && token == before_token; }
  bool Behind(std::string_view token) const {
    return behind_all && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
  }
};

}  // namespace quire::runner::tokenizer
