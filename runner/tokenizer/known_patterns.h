// The pre-tokenizers that GGUF files name but do not spell out.
#pragma once

#include <string_view>
#include <vector>

#include "runner/tokenizer/normalizer.h"

namespace quire::runner::tokenizer {

// The pattern of GPT-2, also what ByteLevel with use_regex stands for in a tokenizer.json.
extern const std::string_view kGpt2Pattern;

struct KnownPreTokenizer {
  std::string_view name;                       // value of tokenizer.ggml.pre
  std::string_view pattern;                    // each match is a piece
  NormalForm normal_form = NormalForm::kNone;  // unless the file says otherwise
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

// Null when nobody knows the name.
const KnownPreTokenizer* FindPreTokenizer(std::string_view name);
std::vector<std::string_view> KnownPreTokenizerNames();

}  // namespace quire::runner::tokenizer
