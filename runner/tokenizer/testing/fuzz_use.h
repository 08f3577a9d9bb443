// The fuzzers' use of a tokenizer built from their bytes.
#pragma once

#include <cstdlib>
#include <memory>
#include <string_view>

#include "api/base/utf8.h"
#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {

inline void Require(bool condition) {
  if (!condition) std::abort();
}

// Ids lie in the vocabulary and their texts are UTF-8.
inline void Use(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
    const auto ids = tokenizer->Encode(text, special);
    Require(ids.has_value());
    Detokenizer detokenizer(tokenizer);
    for (const TokenId id : *ids) {
      Require(id >= 0 && id < tokenizer->vocab_size());
      Require(api::IsValidUtf8(detokenizer.Append(id)));
    }
    Require(api::IsValidUtf8(detokenizer.Flush()));
  }
}

}  // namespace quire::runner::tokenizer
