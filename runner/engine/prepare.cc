#include "runner/engine/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "runner/engine/context_fit.h"
#include "runner/engine/prepare_output.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using Tokens = std::vector<api::TokenId>;

bool BeginsWithSystem(const std::vector<api::Message>& messages) {
  return !messages.empty() && messages.front().role == "system";
}

// Of the prompt as a whole, tools included.
bool BeginsWithSystem(const api::Prompt& prompt) {
  if (const auto* chat = std::get_if<api::ChatPrompt>(&prompt)) {
    return !chat->tools_json.empty() || BeginsWithSystem(chat->messages);
  }
  const auto* continued = std::get_if<api::ContinuedPrompt>(&prompt);
  return continued != nullptr && continued->context.empty() && BeginsWithSystem(continued->messages);
}

struct Preparer {
  const tokenizer::Tokenizer& tokenizer;
  const PromptTemplate& prompt_template;
  int32_t num_ctx;
  const api::Request& request;
  std::optional<api::TokenId> turn_opener;
  AnswerFrame& frame;

  // Where the second message begins, if the first is the system's (or holds the tools); otherwise 0.
  int32_t SystemTokens(const Tokens& tokens, bool begins_with_system) const {
    if (!begins_with_system || !turn_opener) return 0;
    const auto first = std::ranges::find(tokens, *turn_opener);
    if (first == tokens.end()) return 0;
    const auto second = std::find(first + 1, tokens.end(), *turn_opener);
    return second == tokens.end() ? 0 : static_cast<int32_t>(second - tokens.begin());
  }

  api::Result<Tokens> EncodeMessages(std::span<const api::Message> messages,
                                     const std::string& tools_json) const {
    auto rendered = prompt_template.Render(messages, tools_json, frame.thinking());
    if (!rendered) return std::unexpected(rendered.error());
    frame.CloseOrNote(*rendered);
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

  api::Result<void> CheckIds(const Tokens& ids, const char* field) const {
    for (const api::TokenId id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        return api::Fail(api::ErrorCode::kInvalidArgument,
                         fmt::format("{}: the model has no token {}", field, id), field);
      }
    }
    return {};
  }

  // Nothing follows it, so it may fill the context; its begin and end token stay when it is cut.
  api::Result<FittedPrompt> operator()(const api::EmbedPrompt& embed) const {
    const bool as_text = embed.tokens.empty();
    if (auto checked = CheckIds(embed.tokens, "input"); !checked) return std::unexpected(checked.error());
    auto tokens = as_text ? tokenizer.Encode(embed.text, tokenizer::SpecialTokens::kAsText) : embed.tokens;
    if (!tokens) return std::unexpected(tokens.error());
    const size_t begins = as_text && tokenizer.add_bos() ? 1 : 0;
    const size_t ends = as_text && tokenizer.add_eos() ? 1 : 0;
    const size_t whole = tokens->size() + begins + ends;
    const size_t most = static_cast<size_t>(num_ctx);
    if (whole > most && request.overflow == api::Overflow::kRefuse) {
      return api::Fail(
          api::ErrorCode::kContextLengthExceeded,
          fmt::format("the input length exceeds the context length: {} tokens, the context has {}", whole,
                      num_ctx),
          "input");
    }
    if (whole > most) tokens->resize(most - begins - ends);
    if (begins > 0) tokens->insert(tokens->begin(), *tokenizer.bos_id());
    if (ends > 0) tokens->push_back(*tokenizer.eos_id());
    if (tokens->empty()) {
      return api::Fail(api::ErrorCode::kInvalidArgument, "the input is empty", "input");
    }
    const auto dropped = static_cast<int32_t>(whole - tokens->size());
    return FittedPrompt{std::move(*tokens), dropped};
  }

  api::Result<FittedPrompt> operator()(const api::ContinuedPrompt& continued) const {
    if (auto checked = CheckIds(continued.context, "context"); !checked) {
      return std::unexpected(checked.error());
    }
    auto turn = EncodeMessages(continued.messages, {});
    if (!turn) return std::unexpected(turn.error());
    Tokens tokens = continued.context;
    // The conversation goes on: the turn's own begin token is in the context already.
    const bool begins = !turn->empty() && tokenizer.bos_id() == turn->front() && !tokens.empty();
    tokens.insert(tokens.end(), turn->begin() + (begins ? 1 : 0), turn->end());
    const bool system_first = continued.context.empty() && BeginsWithSystem(continued.messages);
    const int32_t keep = request.params.num_keep;
    const int32_t system_tokens = SystemTokens(tokens, system_first);
    // What cannot be cut without losing the system's text is refused.
    const auto overflow = system_tokens + 1 < num_ctx ? request.overflow : api::Overflow::kRefuse;
    return FitTokens(std::move(tokens), num_ctx, keep < 0 ? keep : std::max(keep, system_tokens), overflow);
  }
};

}  // namespace

api::Result<PreparedPrompt> Prepare(const PromptSource& source, const api::Request& request) {
  const int32_t asked = request.params.num_ctx;
  const int32_t num_ctx =
      asked > 0 ? std::min(std::max(asked, kNumCtxMin), source.context_length) : source.context_length;
  auto frame = AnswerFrame::Of(source.format, request);
  if (!frame) return std::unexpected(frame.error());
  const Preparer preparer{source.tokenizer, source.prompt_template, num_ctx,
                          request,          source.turn_opener,     *frame};
  auto fitted = std::visit(preparer, request.prompt);
  if (!fitted) return std::unexpected(fitted.error());
  if (fitted->tokens.empty())
    return api::Fail(api::ErrorCode::kInvalidArgument, "the prompt is empty", "prompt");
  PreparedPrompt prompt{std::move(fitted->tokens), num_ctx, fitted->dropped};
  prompt.system_tokens = preparer.SystemTokens(prompt.tokens, BeginsWithSystem(request.prompt));
  for (size_t i = 1; i < prompt.tokens.size(); ++i) {
    if (prompt.tokens[i] == source.turn_opener) prompt.boundaries.push_back(static_cast<int32_t>(i));
  }
  prompt.output = frame->MakeParser();
  return prompt;
}

}  // namespace quire::runner::engine
