// Token ids of what is embedded or ranked.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/engine/prompt/context_fit.h"
#include "runner/engine/prompt/sentence_settings.h"
#include "runner/models/rank_head.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

struct EmbedContext {
  const tokenizer::Tokenizer& tokenizer;
  const SentenceSettings& sentence;
  const models::RankPrompt* rank_prompt = nullptr;  // of a decoder that ranks
  int32_t num_ctx = 0;
  api::Overflow overflow = api::Overflow::kTruncate;
  // The ids of a normalized text, control tokens as plain text; an error where it is beyond all bounds.
  std::function<api::Result<std::vector<api::TokenId>>(std::string_view)> encode;
};

// Nothing follows, so the ids may fill the context. BOS and EOS are kept when a text is truncated. Errors
// name the field of the request.
api::Result<FittedPrompt> BuildEmbedPrompt(const EmbedContext& context, const api::EmbedPrompt& embed);

}  // namespace quire::runner::engine
