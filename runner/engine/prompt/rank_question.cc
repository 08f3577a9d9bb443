#include "runner/engine/prompt/rank_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::runner::engine {

size_t CutDocument(const api::EmbedPrompt& pair, std::vector<api::TokenId>& document) {
  const auto most = static_cast<size_t>(pair.document_tokens_max);
  if (most == 0 || document.size() <= most) return 0;
  const size_t left_out = document.size() - most;
  document.resize(most);
  return left_out;
}

api::Result<FittedPrompt> BuildRankQuestion(const tokenizer::Tokenizer& tokenizer,
                                            const models::RankPrompt& prompt, const api::EmbedPrompt& pair,
                                            int32_t num_ctx, api::Overflow overflow) {
  const std::string_view before = prompt.before;
  const bool asked = !pair.instruction.empty();
  if (asked && prompt.instruction_end == 0) {
    return api::Fail(api::ErrorCode::kUnsupported, "instruction: this model's question has none",
                     "instruction");
  }
  if (!asked && prompt.only_with_instruction) {
    return BuildRankQuestion(tokenizer, models::RankPrompt(), pair, num_ctx, overflow);
  }
  const size_t begin = asked ? prompt.instruction_begin : 0, end = asked ? prompt.instruction_end : 0;
  const std::array<tokenizer::Segment, 7> parts = {{{before.substr(0, begin), true},
                                                    {pair.instruction, false},
                                                    {before.substr(end), true},
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
  if (tokens->empty()) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "query and document are empty", "documents");
  }
  const int64_t whole = std::ssize(*tokens);
  if (whole <= num_ctx && pair.document_tokens_max == 0) return FittedPrompt{*std::move(tokens), 0, {}};
  auto document = tokenizer.EncodeSegments(std::span(parts).subspan(5, 1));
  if (!document) return std::unexpected(document.error());
  const bool cut = CutDocument(pair, *document) > 0;
  if (whole <= num_ctx && !cut) return FittedPrompt{*std::move(tokens), 0, {}};
  auto head = tokenizer.EncodeSegments(std::span(parts).first(5));
  if (!head) return std::unexpected(head.error());
  const auto tail = tokenizer.EncodeSegments(std::span(parts).last(1));
  if (!tail) return std::unexpected(tail.error());
  with_bos(*head);
  const int64_t room = num_ctx - std::ssize(*head) - std::ssize(*tail);
  const bool fits = cut && std::ssize(*document) <= room;
  if (room < 1 || (overflow == api::Overflow::kRefuse && !fits)) {
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
