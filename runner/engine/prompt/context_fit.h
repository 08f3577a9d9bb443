// Makes a prompt fit the context, or refuses it with both numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"

namespace quire::runner::engine {

struct FittedPrompt {
  std::vector<api::TokenId> tokens;
  int32_t dropped = 0;              // tokens of the whole prompt that were left out
  std::vector<int32_t> types = {};  // of a pair's tokens
};

// A prompt fits when it leaves room for one token of the answer: tokens < num_ctx.
// kContextLengthExceeded names the prompt's tokens and num_ctx.

// kContextLengthExceeded: the messages have more than `tokens_max` tokens, or are beyond the bounds of
// api::TextBoundsFor().
using EncodeMessages =
    std::function<api::Result<std::vector<api::TokenId>>(std::span<const api::Message>, size_t tokens_max)>;

// kTruncate and kDropMessages drop the oldest messages, never a system message and never the last, until the
// rest fits; where not even those fit, kTruncate keeps the end of the last one's text, and else it refuses. A
// template that cannot render some selection (it wants user and assistant in turn) makes the next shorter one
// be taken. What is refused is read for 16 contexts of tokens at most, what is truncated to its end, for
// `dropped`.
api::Result<FittedPrompt> FitMessages(std::span<const api::Message> messages, int32_t num_ctx,
                                      api::Overflow overflow, const EncodeMessages& encode);

// kTruncate keeps the first `num_keep` tokens (-1 = as many as can be) and the newest ones.
api::Result<FittedPrompt> FitTokens(std::vector<api::TokenId> tokens, int32_t num_ctx, int32_t num_keep,
                                    api::Overflow overflow);

}  // namespace quire::runner::engine
