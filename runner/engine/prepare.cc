#include "runner/engine/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "runner/engine/context_fit.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using Tokens = std::vector<api::TokenId>;

struct Preparer {
  const tokenizer::Tokenizer& tokenizer;
  const PromptTemplate& prompt_template;
  int32_t num_ctx;
  const api::Request& request;

  api::Result<Tokens> EncodeMessages(std::span<const api::Message> messages,
                                     const std::string& tools_json) const {
    const auto rendered = prompt_template.Render(messages, tools_json);
    if (!rendered) return std::unexpected(rendered.error());
    std::vector<tokenizer::Segment> segments;
    for (const auto& segment : *rendered) segments.push_back({segment.text, segment.from_template});
    return tokenizer.EncodeSegments(segments);
  }

  api::Result<FittedPrompt> operator()(const api::ChatPrompt& chat) const {
    return FitMessages(chat.messages, num_ctx, request.overflow, [&](std::span<const api::Message> messages) {
      return EncodeMessages(messages, chat.tools_json);
    });
  }

  api::Result<FittedPrompt> operator()(const api::RawPrompt& raw) const {
    auto tokens = tokenizer.Encode(raw.text, tokenizer::SpecialTokens::kParse);
    if (!tokens) return std::unexpected(tokens.error());
    if (tokenizer.add_bos() && (tokens->empty() || tokens->front() != *tokenizer.bos_id())) {
      tokens->insert(tokens->begin(), *tokenizer.bos_id());
    }
    return FitTokens(std::move(*tokens), num_ctx, request.params.num_keep, request.overflow);
  }

  api::Result<FittedPrompt> operator()(const api::ContinuedPrompt& continued) const {
    for (const api::TokenId id : continued.context) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        return api::Fail(api::ErrorCode::kInvalidArgument,
                         fmt::format("context: the model has no token {}", id), "context");
      }
    }
    auto turn = EncodeMessages(continued.messages, {});
    if (!turn) return std::unexpected(turn.error());
    Tokens tokens = continued.context;
    // The conversation goes on: the turn's own begin token is in the context already.
    const bool begins = !turn->empty() && tokenizer.bos_id() == turn->front() && !tokens.empty();
    tokens.insert(tokens.end(), turn->begin() + (begins ? 1 : 0), turn->end());
    return FitTokens(std::move(tokens), num_ctx, request.params.num_keep, request.overflow);
  }
};

}  // namespace

api::Result<PreparedPrompt> Prepare(const tokenizer::Tokenizer& tokenizer,
                                    const PromptTemplate& prompt_template, int32_t context_length,
                                    const api::Request& request) {
  const int32_t asked = request.params.num_ctx;
  const int32_t num_ctx = asked > 0 ? std::min(std::max(asked, kNumCtxMin), context_length) : context_length;
  auto fitted = std::visit(Preparer{tokenizer, prompt_template, num_ctx, request}, request.prompt);
  if (!fitted) return std::unexpected(fitted.error());
  if (fitted->tokens.empty())
    return api::Fail(api::ErrorCode::kInvalidArgument, "the prompt is empty", "prompt");
  return PreparedPrompt{std::move(fitted->tokens), num_ctx, fitted->dropped};
}

}  // namespace quire::runner::engine
