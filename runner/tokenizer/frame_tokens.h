// Token ids of whole inputs of an encoder: special tokens and token types included.
#pragma once

#include <cstdint>
#include <vector>

#include "api/base/error.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {

struct FramedTokens {
  std::vector<TokenId> ids;
  std::vector<int32_t> types;  // as long as ids, or empty: all are 0
  int64_t dropped = 0;         // tokens left out to fit
};

// The pair as the tokenizer frames it, at most `tokens_max` tokens: the end of the second text is left out,
// and where that is not enough the end of the first. kUnsupported: the tokenizer knows no pairs.
// kContextLengthExceeded where the frame alone is longer.
api::Result<FramedTokens> FramePair(const Tokenizer& tokenizer, std::vector<TokenId> first,
                                    std::vector<TokenId> second, size_t tokens_max);

}  // namespace quire::runner::tokenizer
