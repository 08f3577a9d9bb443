// Prompts for filling in the middle (FIM) between two texts.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "runner/engine/prompt/context_fit.h"

namespace quire::runner {
class PromptTemplate;
namespace tokenizer {
class Tokenizer;
}
}  // namespace quire::runner

namespace quire::runner::engine {

class TextEncoder;

// The control tokens around the two texts of a FimPrompt.
struct FimTokens {
  api::TokenId prefix = 0;
  api::TokenId suffix = 0;
  api::TokenId middle = 0;  // the answer follows
  // Before the name of a project, and before the name and text of each of its files; nothing: the model has
  // none.
  std::optional<api::TokenId> repository = {};
  std::optional<api::TokenId> file = {};
};
// Nothing for a model without FIM tokens.
std::optional<FimTokens> FindFimTokens(const tokenizer::Tokenizer& tokenizer);

struct FimContext {
  const PromptTemplate& prompt_template;
  std::optional<FimTokens> tokens;
  const TextEncoder& encoder;
  int32_t num_ctx = 0;
  api::Overflow overflow = api::Overflow::kTruncate;
  int32_t num_keep = 0;
  int32_t num_predict = 0;  // tokens that the files leave to the answer, if positive
  std::tm now = {};         // of the request
};

// By a template that knows .Suffix, else by the model's FIM tokens. kUnsupported: neither is there.
api::Result<FittedPrompt> BuildFimPrompt(const FimContext& context, const api::FimPrompt& prompt);

}  // namespace quire::runner::engine
