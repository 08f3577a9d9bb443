// The pre-tokenizers that GGUF files name but do not spell out: all names that llama.cpp 0.7.0 knows.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runner/tokenizer/normalizer.h"

namespace quire::runner::tokenizer {

// The pattern of GPT-2, also what ByteLevel with use_regex stands for in a tokenizer.json.
extern const std::string_view kGpt2Pattern;

struct KnownPreTokenizer {
  std::string_view name;  // value of tokenizer.ggml.pre
  // One after the other: each match is a piece, and so is what lies between matches. Empty: not byte-level;
  // merges work on the text with marks for spaces, as in Gemma 4.
  std::span<const std::string_view> patterns;
  NormalForm normal_form = NormalForm::kNone;  // of the published tokenizers; unless the file says otherwise
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

// Null when nobody knows the name.
const KnownPreTokenizer* FindPreTokenizer(std::string_view name);
std::vector<std::string_view> KnownPreTokenizerNames();

// Why a name that llama.cpp knows cannot be served here; empty for all others.
std::string_view WhyUnsupported(std::string_view name);

}  // namespace quire::runner::tokenizer
