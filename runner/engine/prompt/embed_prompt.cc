#include "runner/engine/prompt/embed_prompt.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "runner/engine/prompt/rank_question.h"
#include "runner/tokenizer/frame_tokens.h"
#include "runner/tokenizer/text_frame.h"

namespace quire::runner::engine {
namespace {

using EmbedTokens = std::vector<api::TokenId>;

// Both texts as the model's tokenizer frames a pair.
api::Result<FittedPrompt> BuildPair(const EmbedContext& context, const api::EmbedPrompt& pair) {
  // A classifier that is a decoder asks nothing: its tokenizer frames pairs, or puts one text behind the
  // other.
  const models::RankPrompt* const question = context.rank_prompt;
  const bool plain = question != nullptr && question->only_with_instruction && pair.instruction.empty() &&
                     !context.tokenizer.pair_frame().items.empty();
  if (question != nullptr && !plain) {
    return BuildRankQuestion(context.tokenizer, *question, pair, context.num_ctx, context.overflow);
  }
  if (!pair.instruction.empty()) {
    return api::Fail(api::ErrorCode::kUnsupported, "instruction: this model ranks without one",
                     "instruction");
  }
  auto query = context.encode(pair.text);
  if (!query) return std::unexpected(query.error());
  auto document = context.encode(pair.document);
  if (!document) return std::unexpected(document.error());
  const size_t left_out = CutDocument(pair, *document);
  auto framed = tokenizer::FramePair(context.tokenizer, *std::move(query), *std::move(document),
                                     static_cast<size_t>(context.num_ctx));
  if (!framed) return std::unexpected(framed.error());
  if (framed->dropped > 0 && context.overflow == api::Overflow::kRefuse) {
    const int64_t whole = std::ssize(framed->ids) + framed->dropped;
    return api::Fail(
        api::ErrorCode::kContextLengthExceeded,
        fmt::format("query and document exceed the context length: {} tokens, the context has {}", whole,
                    context.num_ctx),
        "documents");
  }
  const auto dropped = static_cast<int32_t>(framed->dropped + static_cast<int64_t>(left_out));
  return FittedPrompt{std::move(framed->ids), dropped, std::move(framed->types)};
}

// The text behind the prefix that it asks for.
api::Result<EmbedTokens> EncodeText(const EmbedContext& context, const api::EmbedPrompt& embed) {
  const auto prefix = context.sentence.Prefix(embed.prompt_name, embed.prompt_required);
  if (!prefix) return std::unexpected(prefix.error());
  return context.encode(*prefix + embed.text);
}

}  // namespace

api::Result<FittedPrompt> BuildEmbedPrompt(const EmbedContext& context, const api::EmbedPrompt& embed) {
  if (embed.rank) return BuildPair(context, embed);
  const tokenizer::Tokenizer& tokenizer = context.tokenizer;
  const bool as_text = embed.tokens.empty();
  auto tokens = as_text ? EncodeText(context, embed) : embed.tokens;
  if (!tokens) return std::unexpected(tokens.error());
  const size_t begins = as_text && tokenizer.add_bos() ? 1 : 0;
  const size_t ends = as_text && tokenizer.add_eos() ? 1 : 0;
  const size_t whole = tokens->size() + begins + ends;
  const auto tokens_max = static_cast<size_t>(context.num_ctx);
  if (whole > tokens_max && context.overflow == api::Overflow::kRefuse) {
    return api::Fail(api::ErrorCode::kContextLengthExceeded,
                     fmt::format("the input length exceeds the context length: {} tokens, the context has {}",
                                 whole, context.num_ctx),
                     "input");
  }
  if (whole > tokens_max) {
    const auto too_many = static_cast<ptrdiff_t>(whole - tokens_max);
    const auto first = embed.keep_end ? tokens->begin() : tokens->end() - too_many;
    tokens->erase(first, first + too_many);
  }
  if (begins > 0) tokens->insert(tokens->begin(), *tokenizer.bos_id());
  if (ends > 0) tokens->push_back(*tokenizer.eos_id());
  if (tokens->empty()) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "the input is empty", "input");
  }
  const auto dropped = static_cast<int32_t>(whole - tokens->size());
  return FittedPrompt{*std::move(tokens), dropped, {}};
}

}  // namespace quire::runner::engine
