// From a request to the token ids of its prompt: render, tokenize, make fit.
#pragma once

#include <cstdint>
#include <vector>

#include "api/error.h"
#include "api/ids.h"
#include "api/request.h"

namespace quire::runner {
class PromptTemplate;
namespace tokenizer {
class Tokenizer;
}
}  // namespace quire::runner

namespace quire::runner::engine {

struct PreparedPrompt {
  std::vector<api::TokenId> tokens;  // at least one, fewer than num_ctx
  int32_t num_ctx = 0;               // of this request
  int32_t dropped = 0;               // prompt tokens left out to fit
};

inline constexpr int32_t kNumCtxMin = 4;

// A pure function of immutable things; any thread. `context_length` is the model's. Errors: kInvalidArgument
// (the template refuses the messages, the prompt is empty, `context` holds an id the model does not have),
// kContextLengthExceeded, kTooLarge.
api::Result<PreparedPrompt> Prepare(const tokenizer::Tokenizer& tokenizer,
                                    const PromptTemplate& prompt_template, int32_t context_length,
                                    const api::Request& request);

}  // namespace quire::runner::engine
