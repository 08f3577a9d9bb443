// The prompt with which a decoder ranks: its question about a query and a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/engine/prompt/context_fit.h"
#include "runner/models/rank_head.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

// Leaves out the end of a document that is longer than the pair allows; how many tokens.
size_t CutDocument(const api::EmbedPrompt& pair, std::vector<api::TokenId>& document);

// Control tokens in instruction, query and document are plain text. Where the whole does not fit into
// `num_ctx` tokens, the document loses its end; kContextLengthExceeded where that is not allowed or not
// enough. kUnsupported: the model's question has no instruction, and the pair does.
api::Result<FittedPrompt> BuildRankQuestion(const tokenizer::Tokenizer& tokenizer,
                                            const models::RankPrompt& prompt, const api::EmbedPrompt& pair,
                                            int32_t num_ctx, api::Overflow overflow);

}  // namespace quire::runner::engine
