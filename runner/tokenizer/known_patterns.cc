#include "runner/tokenizer/known_patterns.h"

#include <algorithm>
#include <array>

namespace quire::runner::tokenizer {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::array kKnown = {
    KnownPreTokenizer{.name = "gpt-2", .pattern = kGpt2},
    KnownPreTokenizer{.name = "llama-bpe", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    KnownPreTokenizer{.name = "llama3", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    KnownPreTokenizer{.name = "llama-v3", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    KnownPreTokenizer{.name = "lfm2", .pattern = kLlama3, .ignore_merges = true, .add_bos = true},
    KnownPreTokenizer{.name = "qwen2", .pattern = kQwen2, .normal_form = NormalForm::kNfc},
    KnownPreTokenizer{.name = "qwen35", .pattern = kQwen35, .normal_form = NormalForm::kNfc},
    KnownPreTokenizer{.name = "gpt-4o", .pattern = kO200k},
    KnownPreTokenizer{.name = "tekken", .pattern = kTekken, .ignore_merges = true, .add_bos = true},
};

}  // namespace

const std::string_view kGpt2Pattern = kGpt2;

const KnownPreTokenizer* FindPreTokenizer(std::string_view name) {
  const auto* found =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const auto& known) { return known.name == name; });
  return found == kKnown.end() ? nullptr : found;
}

std::vector<std::string_view> KnownPreTokenizerNames() {
  std::vector<std::string_view> names;
  names.reserve(kKnown.size());
  for (const KnownPreTokenizer& known : kKnown) names.push_back(known.name);
  return names;
}

}  // namespace quire::runner::tokenizer
