#include "runner/engine/prompt/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runner/engine/prompt/prompt_builder.h"
#include "runner/tokenizer/detokenizer.h"

namespace quire::runner::engine {

TextEncoder::TextEncoder(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                         const PromptTemplate& prompt_template, const api::Request& request, int32_t num_ctx)
    : tokenizer_(std::move(tokenizer)),
      prompt_template_(prompt_template),
      request_(request),
      num_ctx_(num_ctx) {}

void TextEncoder::AddBos(std::vector<api::TokenId>& tokens) const {
  if (!tokenizer_->add_bos() || (!tokens.empty() && tokens.front() == *tokenizer_->bos_id())) return;
  tokens.insert(tokens.begin(), *tokenizer_->bos_id());
}

api::Result<std::vector<api::TokenId>> TextEncoder::EncodeRendered(const std::vector<PromptSegment>& rendered,
                                                                   size_t tokens_max) const {
  std::vector<tokenizer::Segment> segments;
  segments.reserve(rendered.size());
  for (const auto& segment : rendered) segments.push_back({segment.text, segment.from_template});
  auto tokens = EncodeBounded(segments, tokens_max);
  // Go templates leave BOS to the tokenizer.
  const bool leaves_bos = !prompt_template_.go_source().empty() || tokenizer_->add_bos_to_chats();
  if (tokens && leaves_bos) AddBos(*tokens);
  return tokens;
}

api::Result<std::vector<api::TokenId>> TextEncoder::EncodeText(std::string_view text,
                                                               tokenizer::SpecialTokens special) const {
  const std::array segments{tokenizer::Segment{text, special == tokenizer::SpecialTokens::kParse}};
  return EncodeBounded(segments);
}

api::Result<std::vector<api::TokenId>> TextEncoder::EncodeBounded(
    std::span<const tokenizer::Segment> segments, size_t tokens_max) const {
  api::TextBounds bounds = request_.prompt_only ? api::TextBounds{kDescribedBytesMax, kDescribedTokensMax}
                                                : api::TextBoundsFor(num_ctx_, request_.overflow);
  // What a prompt alone is asked for is counted exactly.
  if (!request_.prompt_only) bounds.tokens = std::min(bounds.tokens, tokens_max);
  size_t bytes = 0;
  for (const auto& segment : segments) bytes += segment.text.size();
  if (bytes > bounds.bytes) return std::unexpected(BeyondBounds(bounds));
  auto tokens = tokenizer_->EncodeSegments(segments, bounds.tokens);
  const bool beyond = !tokens && tokens.error().code == api::ErrorCode::kContextLengthExceeded;
  if (beyond) return std::unexpected(BeyondBounds(bounds));
  return tokens;
}

api::Error TextEncoder::BeyondBounds(const api::TextBounds& bounds) const {
  if (!request_.prompt_only) return api::ExceedsBounds(bounds, num_ctx_);
  return {api::ErrorCode::kTooLarge,
          fmt::format("the text has more than {} tokens or {} bytes", bounds.tokens, bounds.bytes)};
}

std::string TextEncoder::TextOf(const std::vector<api::TokenId>& tokens) const {
  tokenizer::Detokenizer detokenizer(tokenizer_);
  std::string text;
  for (const api::TokenId token : tokens) text += detokenizer.Append(token);
  return text + detokenizer.Flush();
}

api::Result<void> TextEncoder::CheckIds(const std::vector<api::TokenId>& ids, std::string_view field) const {
  for (const api::TokenId id : ids) {
    if (id < 0 || id >= tokenizer_->vocab_size()) {
      return api::Fail(api::ErrorCode::kInvalidArgument,
                       fmt::format("{}: the model has no token {}", field, id), std::string(field));
    }
  }
  return {};
}

}  // namespace quire::runner::engine
