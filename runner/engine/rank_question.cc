#include "runner/engine/rank_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace quire::runner::engine {

api::Result<FittedPrompt> BuildRankQuestion(const tokenizer::Tokenizer& tokenizer,
                                            const models::RankPrompt& prompt, const api::EmbedPrompt& pair,
                                            int32_t num_ctx, api::Overflow overflow) {
  const std::array<tokenizer::Segment, 5> parts = {{{prompt.before, true},
                                                    {pair.text, false},
                                                    {prompt.between, true},
                                                    {pair.document, false},
                                                    {prompt.after, true}}};
  const auto with_bos = [&](std::vector<api::TokenId>& tokens) {
    if (tokenizer.add_bos()) tokens.insert(tokens.begin(), *tokenizer.bos_id());
  };
  auto tokens = tokenizer.EncodeSegments(parts);
  if (!tokens) return std::unexpected(tokens.error());
  with_bos(*tokens);
  const int64_t whole = std::ssize(*tokens);
  if (whole <= num_ctx) return FittedPrompt{*std::move(tokens), 0, {}};
  auto head = tokenizer.EncodeSegments(std::span(parts).first(3));
  if (!head) return std::unexpected(head.error());
  auto document = tokenizer.EncodeSegments(std::span(parts).subspan(3, 1));
  if (!document) return std::unexpected(document.error());
  const auto tail = tokenizer.EncodeSegments(std::span(parts).last(1));
  if (!tail) return std::unexpected(tail.error());
  with_bos(*head);
  const int64_t room = num_ctx - std::ssize(*head) - std::ssize(*tail);
  if (room < 1 || overflow == api::Overflow::kRefuse) {
    return api::Fail(
        api::ErrorCode::kContextLengthExceeded,
        fmt::format("query and document exceed the context length: {} tokens, the context has {}", whole,
                    num_ctx),
        "documents");
  }
  document->resize(std::min(document->size(), static_cast<size_t>(room)));
  head->insert(head->end(), document->begin(), document->end());
  head->insert(head->end(), tail->begin(), tail->end());
  const auto dropped = static_cast<int32_t>(std::max<int64_t>(whole - std::ssize(*head), 0));
  return FittedPrompt{*std::move(head), dropped, {}};
}

}  // namespace quire::runner::engine
