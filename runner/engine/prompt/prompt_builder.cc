#include "runner/engine/prompt/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include "api/base/text_bounds.h"
#include "api/ipc/messages.h"
#include "runner/engine/prompt/context_fit.h"
#include "runner/engine/prompt/embed_prompt.h"
#include "runner/engine/prompt/fim_prompt.h"
#include "runner/engine/prompt/output_plan.h"
#include "runner/engine/prompt/text_encoder.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using Tokens = std::vector<api::TokenId>;

bool BeginsWithSystem(const std::vector<api::Message>& messages) {
  return !messages.empty() && messages.front().role == "system";
}

// For the prompt as a whole, including tools.
bool BeginsWithSystem(const api::Prompt& prompt) {
  if (const auto* chat = std::get_if<api::ChatPrompt>(&prompt)) {
    return !chat->tools.empty() || BeginsWithSystem(chat->messages);
  }
  const auto* continued = std::get_if<api::ContinuedPrompt>(&prompt);
  return continued != nullptr && continued->context.empty() && BeginsWithSystem(continued->messages);
}

struct PromptBuilder {
  const PromptContext& context;
  const PromptTemplate& prompt_template;
  int32_t num_ctx;
  const api::Request& request;
  OutputPlan& output_plan;
  const TextEncoder& encoder;
  std::string& rendered_text;  // of a chat that is only described
  const RequestImages& images;
  const std::tm now = LocalTime(request.now_s);

  // Where the second message begins, if the first is the system's (or holds the tools); otherwise 0.
  int32_t SystemTokens(const Tokens& tokens, bool begins_with_system) const {
    if (!begins_with_system || !context.turn_start_token) return 0;
    const auto first = std::ranges::find(tokens, *context.turn_start_token);
    if (first == tokens.end()) return 0;
    const auto second = std::find(first + 1, tokens.end(), *context.turn_start_token);
    return second == tokens.end() ? 0 : static_cast<int32_t>(second - tokens.begin());
  }

  api::Result<std::vector<PromptSegment>> Render(std::span<const api::Message> messages,
                                                 std::span<const api::Tool> tools, api::PromptEnd end) const {
    if (images.empty()) return prompt_template.Render(messages, tools, now, output_plan.thinking(), end);
    auto rendered = prompt_template.Render(messages, tools, now, output_plan.thinking(), end,
                                           images.placeholder(), images.spelled_placeholder());
    if (!rendered) return rendered;
    return images.Expand(*std::move(rendered), messages);
  }

  api::Result<Tokens> EncodeMessages(std::span<const api::Message> messages, std::span<const api::Tool> tools,
                                     size_t tokens_max = std::numeric_limits<size_t>::max()) const {
    auto rendered = Render(messages, tools, Ending());
    if (!rendered) return std::unexpected(rendered.error());
    output_plan.DetectOpenThinking(*rendered);
    if (request.return_prompt_text) {
      rendered_text.clear();
      for (const PromptSegment& segment : *rendered) rendered_text += segment.text;
    }
    return Marked(encoder.EncodeRendered(*rendered, tokens_max), messages);
  }

  api::Result<Tokens> Marked(api::Result<Tokens> tokens, std::span<const api::Message> messages) const {
    if (!tokens || images.empty()) return tokens;
    if (auto marked = images.Mark(messages, *tokens); !marked) return std::unexpected(marked.error());
    return tokens;
  }

  // The prompt of a model without a prompt format: the texts, an empty line between two, for it to complete.
  api::Result<Tokens> EncodeTexts(std::span<const api::Message> messages, bool first) const {
    std::string text;
    for (const api::Message& message : messages) {
      if (!text.empty()) text += "\n\n";
      text += message.content;
    }
    auto tokens = encoder.EncodeText(text, tokenizer::SpecialTokens::kAsText);
    if (tokens && first) encoder.AddBos(*tokens);
    return tokens;
  }

  api::PromptEnd Ending() const {
    const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
    return chat == nullptr ? api::PromptEnd::kAuto : chat->end;
  }

  std::vector<int32_t> RestorePoints(const BuiltPrompt& prompt) const {
    std::vector<int32_t> points;
    if (request.restore_point && prompt.tokens.size() > 1) {
      points.push_back(static_cast<int32_t>(prompt.tokens.size()) - 1);  // the last token is always computed
    }
    const auto* chat = std::get_if<api::ChatPrompt>(&request.prompt);
    if (chat == nullptr || prompt.dropped > 0) return points;
    if (std::ranges::any_of(chat->tools, &api::Tool::restore_point)) points.push_back(prompt.system_tokens);
    for (size_t i = 0; i < chat->messages.size(); ++i) {
      if (chat->messages[i].restore_point) points.push_back(EndOfMessage(*chat, i, prompt));
    }
    std::erase_if(points, [&](int32_t at) { return at <= 0 || at >= std::ssize(prompt.tokens); });
    std::ranges::sort(points);
    points.erase(std::ranges::unique(points).begin(), points.end());
    return points;
  }

  // In tokens of the prompt; 0 where it cannot be found. A template may change a message's text, so the end
  // of a message is found by rendering the conversation up to there.
  int32_t EndOfMessage(const api::ChatPrompt& chat, size_t index, const BuiltPrompt& prompt) const {
    const api::Message& message = chat.messages[index];
    if (index == 0 && message.role == "system") return prompt.system_tokens;
    const auto first = std::span(chat.messages).first(index + 1);
    const auto rendered = Render(first, chat.tools, api::PromptEnd::kAuto);
    const auto tokens =
        rendered ? Marked(encoder.EncodeRendered(*rendered), first) : std::unexpected(rendered.error());
    if (!tokens) return 0;
    const auto parted = std::ranges::mismatch(*tokens, prompt.tokens);
    const auto common = static_cast<int32_t>(parted.in1 - tokens->begin());
    const std::vector<int32_t>& ends = prompt.boundaries;
    if (ends.empty()) return std::min(common, static_cast<int32_t>(prompt.tokens.size()) - 1);
    // What follows the message begins at the last boundary of the common part. A template leaves a last
    // message of the assistant open, so that it ends behind that part.
    const auto behind = std::ranges::upper_bound(ends, common);
    const bool open = message.role == "assistant" && parted.in1 == tokens->end();
    if (open && index + 1 < chat.messages.size()) return behind == ends.end() ? 0 : *behind;
    return behind == ends.begin() ? 0 : *(behind - 1);
  }

  api::Result<FittedPrompt> operator()(const api::ChatPrompt& chat) const {
    return FitMessages(chat.messages, num_ctx, request.overflow,
                       [&](std::span<const api::Message> messages, size_t tokens_max) {
                         return EncodeMessages(messages, chat.tools, tokens_max);
                       });
  }

  api::Result<FittedPrompt> operator()(const api::RawPrompt& raw) const {
    auto tokens = encoder.EncodeText(
        raw.text, raw.parse_special ? tokenizer::SpecialTokens::kParse : tokenizer::SpecialTokens::kAsText);
    if (!tokens) return std::unexpected(tokens.error());
    if (raw.add_special) encoder.AddBos(*tokens);
    return FitTokens(std::move(*tokens), num_ctx, request.params.num_keep, request.overflow);
  }

  api::Result<FittedPrompt> operator()(const api::TokenPrompt& prompt) const {
    if (auto known = encoder.CheckIds(prompt.tokens, request.prompt_only ? "tokens" : "prompt"); !known) {
      return std::unexpected(known.error());
    }
    return FitTokens(prompt.tokens, num_ctx, request.params.num_keep, request.overflow);
  }

  api::Result<FittedPrompt> operator()(const api::MixedPrompt& mixed) const {
    Tokens tokens;
    for (size_t i = 0; i < mixed.pieces.size(); ++i) {
      const api::MixedPrompt::Piece& piece = mixed.pieces[i];
      const bool as_text = piece.tokens.empty();
      if (auto known = encoder.CheckIds(piece.tokens, "prompt"); !known)
        return std::unexpected(known.error());
      auto encoded =
          as_text ? encoder.EncodeText(piece.text, tokenizer::SpecialTokens::kParse) : piece.tokens;
      if (!encoded) return std::unexpected(encoded.error());
      if (as_text && i == 0) encoder.AddBos(*encoded);
      tokens.insert(tokens.end(), encoded->begin(), encoded->end());
    }
    return FitTokens(std::move(tokens), num_ctx, request.params.num_keep, request.overflow);
  }

  api::Result<FittedPrompt> operator()(const api::FimPrompt& prompt) const {
    return BuildFimPrompt({.prompt_template = prompt_template,
                           .tokens = context.fim_tokens,
                           .encoder = encoder,
                           .num_ctx = num_ctx,
                           .overflow = request.overflow,
                           .num_keep = request.params.num_keep,
                           .num_predict = request.params.num_predict,
                           .now = now},
                          prompt);
  }

  api::Result<FittedPrompt> operator()(const api::EmbedPrompt& embed) const {
    if (auto checked = encoder.CheckIds(embed.tokens, "input"); !checked)
      return std::unexpected(checked.error());
    static const SentenceSettings kNone;
    const SentenceSettings& sentence = context.sentence != nullptr ? *context.sentence : kNone;
    const auto encode = [&](std::string_view text) {
      return encoder.EncodeText(sentence.Normalize(text), tokenizer::SpecialTokens::kAsText);
    };
    return BuildEmbedPrompt({.tokenizer = *context.tokenizer,
                             .sentence = sentence,
                             .rank_prompt = context.rank_prompt,
                             .num_ctx = sentence.TokensMax(num_ctx),
                             .overflow = request.overflow,
                             .encode = encode},
                            embed);
  }

  // Biases of tokens that there are, and some token left that may come.
  api::Result<void> CheckBiases() const {
    Tokens biased;
    std::unordered_set<api::TokenId> banned;
    for (const api::LogitBias& bias : request.params.logit_bias) {
      biased.push_back(bias.token);
      if (bias.bias <= -api::kLogitBiasMax) banned.insert(bias.token);
    }
    if (auto known = encoder.CheckIds(biased, "logit_bias"); !known) return known;
    if (auto known = encoder.CheckIds(request.params.stop_token_ids, "stop_token_ids"); !known) return known;
    // As LogitProcessor does for the first token.
    const api::GenerationParams& params = request.params;
    const bool no_end = params.ignore_eos || params.min_tokens > 0;
    if (no_end && context.end_of_generation != nullptr)
      banned.insert(context.end_of_generation->begin(), context.end_of_generation->end());
    if (params.min_tokens > 0) banned.insert(params.stop_token_ids.begin(), params.stop_token_ids.end());
    if (std::ssize(banned) < context.tokenizer->vocab_size()) return {};
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     "no token may come: logit_bias, ignore_eos and min_tokens ban every one", "logit_bias");
  }

  api::Result<FittedPrompt> operator()(const api::ContinuedPrompt& continued) const {
    if (auto known = encoder.CheckIds(continued.context, "context"); !known)
      return std::unexpected(known.error());
    auto turn = prompt_template.refusal().empty()
                    ? EncodeMessages(continued.messages, {})
                    : EncodeTexts(continued.messages, continued.context.empty());
    if (!turn) return std::unexpected(turn.error());
    if (!prompt_template.refusal().empty() && !images.empty())
      return api::Fail(api::ErrorCode::kUnsupported, prompt_template.refusal(), "images");
    Tokens tokens = continued.context;
    // The context already starts with BOS: drop the turn's own.
    const bool begins = !turn->empty() && context.tokenizer->bos_id() == turn->front() && !tokens.empty();
    tokens.insert(tokens.end(), turn->begin() + (begins ? 1 : 0), turn->end());
    const bool system_first = continued.context.empty() && BeginsWithSystem(continued.messages);
    const int32_t keep = request.params.num_keep;
    const int32_t system_tokens = SystemTokens(tokens, system_first);
    // A prompt that cannot be cut without losing the system text is rejected.
    const auto overflow = system_tokens + 1 < num_ctx ? request.overflow : api::Overflow::kRefuse;
    return FitTokens(std::move(tokens), num_ctx, keep < 0 ? keep : std::max(keep, system_tokens), overflow);
  }
};

// What a client gives no credit for must fit what it starts with.
static_assert(kDescribedPiecesMax / kDescribedPiecesPerDelta < size_t{api::ipc::kInitialCredit});

// The tokens as one text; with `pieces` also each by itself, in several deltas: each is one frame, which the
// daemon decodes at one go.
std::vector<api::TextDelta> PromptText(const PromptContext& context, bool pieces, const Tokens& tokens) {
  std::vector<api::TextDelta> deltas(1);
  tokenizer::Detokenizer detokenizer(context.tokenizer);
  for (const api::TokenId token : tokens) {
    if (deltas.back().logprobs.size() == kDescribedPiecesPerDelta) deltas.emplace_back();
    api::TextDelta& delta = deltas.back();
    delta.text += detokenizer.Append(token);
    if (!pieces) continue;
    api::TokenCandidate piece{std::string(context.tokenizer->TokenBytes(token)), token};
    delta.logprobs.push_back({std::move(piece), {}});
  }
  deltas.back().text += detokenizer.Flush();
  return deltas;
}

int32_t ContextOf(const PromptContext& context, int32_t asked) {
  return asked > 0 ? std::min(std::max(asked, kNumCtxMin), context.context_length) : context.context_length;
}

// The one that the request brings; null: none.
api::Result<std::shared_ptr<const PromptTemplate>> OwnTemplate(const api::Request& request) {
  if (request.go_template.empty()) return nullptr;
  auto parsed = PromptTemplate::ParseGo(request.go_template);
  if (!parsed) return api::Fail(api::ErrorCode::kInvalidArgument, parsed.error().message, "template");
  return parsed;
}

// Whether the model does what the request asks for.
api::Result<void> SuitsTask(ModelTask task, const api::Request& request) {
  if (request.prompt_only) return {};
  const auto* embed = std::get_if<api::EmbedPrompt>(&request.prompt);
  const std::string name =
      request.model_name.empty() ? "this model" : fmt::format("model \"{}\"", request.model_name);
  const auto refuse = [&](const char* does) {
    return api::Fail(api::ErrorCode::kUnsupported, name + does, "model");
  };
  if (embed == nullptr && task == ModelTask::kEmbed)
    return refuse(" embeds texts; it does not generate text");
  if (embed == nullptr && task == ModelTask::kRank) return refuse(" ranks texts; it does not generate text");
  if (embed != nullptr && !embed->rank && task == ModelTask::kRank)
    return refuse(" ranks texts; it does not embed them");
  if (embed != nullptr && embed->rank && task != ModelTask::kRank) return refuse(" does not rank texts");
  return {};
}

api::Result<BuiltPrompt> BuildWith(const RequestImages& images, const PromptContext& context,
                                   const api::Request& request) {
  if (auto suits = SuitsTask(context.task, request); !suits) return std::unexpected(suits.error());
  const int32_t num_ctx = request.prompt_only ? INT32_MAX : ContextOf(context, request.params.num_ctx);
  auto output_plan = OutputPlan::Of(context.format, request);
  if (!output_plan) return std::unexpected(output_plan.error());
  const auto own = OwnTemplate(request);
  if (!own) return std::unexpected(own.error());
  const PromptTemplate& prompt_template = *own != nullptr ? **own : context.prompt_template;
  const TextEncoder encoder(context.tokenizer, prompt_template, request, num_ctx);
  std::string rendered_text;
  const PromptBuilder builder{context,      prompt_template, num_ctx,       request,
                              *output_plan, encoder,         rendered_text, images};
  if (auto biased = builder.CheckBiases(); !biased) return std::unexpected(biased.error());
  auto fitted = std::visit(builder, request.prompt);
  if (!fitted) {
    return std::unexpected(
        api::WithContextOptions(fitted.error(), num_ctx, context.context_length, context.context_max));
  }
  if (fitted->tokens.empty() && !request.prompt_only)
    return api::Fail(api::ErrorCode::kInvalidArgument, "the prompt is empty", "prompt");
  BuiltPrompt prompt{std::move(fitted->tokens), num_ctx, fitted->dropped};
  if (!images.empty()) {
    auto spans = images.SpansIn(prompt.tokens);
    if (!spans) return std::unexpected(std::move(spans.error()));
    prompt.images = *std::move(spans);
  }
  prompt.types = std::move(fitted->types);
  if (std::holds_alternative<api::ChatPrompt>(request.prompt))
    prompt.rendered_text = std::move(rendered_text);
  prompt.system_tokens = builder.SystemTokens(prompt.tokens, BeginsWithSystem(request.prompt));
  for (size_t i = 1; i < prompt.tokens.size(); ++i) {
    if (prompt.tokens[i] == context.turn_start_token) prompt.boundaries.push_back(static_cast<int32_t>(i));
  }
  prompt.restore_points = builder.RestorePoints(prompt);
  prompt.output = output_plan->MakeParser();
  if (!request.prompt_only) {
    auto constraint = output_plan->ConstraintOf(context);
    if (!constraint) return std::unexpected(std::move(constraint.error()));
    prompt.constraint = std::move(*constraint);
    prompt.thinking_budget = output_plan->BudgetOf(*context.tokenizer);
  }
  return prompt;
}

}  // namespace

api::Result<BuiltPrompt> BuildPrompt(const PromptContext& context, const api::Request& request) {
  const auto images = RequestImages::Prepare(context.images, request);
  if (!images) return std::unexpected(images.error());
  if (request.prompt_logprobs >= 0 && !images->empty())
    return api::Fail(api::ErrorCode::kUnsupported, "rows of images have no log-probabilities",
                     "prompt_logprobs");
  auto prompt = BuildWith(*images, context, request);
  if (prompt && request.prompt_only && !images->empty()) images->Unmark(prompt->tokens);
  return prompt;
}

std::vector<api::Event> DescribePrompt(const PromptContext& context, const api::Request& request) {
  auto prompt = BuildPrompt(context, request);
  if (!prompt) return {api::Failed{prompt.error()}};
  const bool pieces = request.return_prompt_text && request.logprobs;
  const size_t tokens_max = pieces ? kDescribedPiecesMax : kDescribedTokensMax;
  if (prompt->tokens.size() > tokens_max) {
    return {
        api::Failed{{api::ErrorCode::kTooLarge,
                     fmt::format("the text has {} tokens, more than {}", prompt->tokens.size(), tokens_max),
                     {}}}};
  }
  api::Finished finished{};
  finished.usage.prompt_tokens = static_cast<int32_t>(prompt->tokens.size());
  std::vector<api::Event> events = {api::PromptReady{.prompt_tokens = finished.usage.prompt_tokens}};
  if (request.return_prompt_text) {
    // For a chat what its template wrote: the text of its tokens may differ by spaces, and then in its
    // tokens.
    std::vector<api::TextDelta> parts = prompt->rendered_text.empty() || pieces
                                            ? PromptText(context, pieces, prompt->tokens)
                                            : std::vector{api::TextDelta{.text = prompt->rendered_text}};
    size_t bytes = 0;
    for (const api::TextDelta& part : parts) bytes += part.text.size();
    if (bytes > kDescribedBytesMax) {
      return {api::Failed{{api::ErrorCode::kTooLarge,
                           fmt::format("the text has {} bytes, more than {}", bytes, kDescribedBytesMax),
                           {}}}};
    }
    for (api::TextDelta& part : parts) events.emplace_back(std::move(part));
  }
  if (request.return_context) finished.context = std::move(prompt->tokens);
  events.emplace_back(std::move(finished));
  return events;
}

}  // namespace quire::runner::engine
