#include "runner/engine/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include "api/base/text_bounds.h"
#include "runner/engine/context_fit.h"
#include "runner/engine/embed_prompt.h"
#include "runner/engine/output_plan.h"
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
  std::shared_ptr<const tokenizer::Tokenizer> shared_tokenizer;
  const tokenizer::Tokenizer& tokenizer;
  const PromptTemplate& prompt_template;
  int32_t num_ctx;
  const api::Request& request;
  std::optional<api::TokenId> turn_start_token;
  std::optional<FimTokens> fim_tokens;
  OutputPlan& output_plan;
  const models::RankPrompt* rank_prompt = nullptr;
  const SentencePrompts* sentence_prompts = nullptr;

  // Where the second message begins, if the first is the system's (or holds the tools); otherwise 0.
  int32_t SystemTokens(const Tokens& tokens, bool begins_with_system) const {
    if (!begins_with_system || !turn_start_token) return 0;
    const auto first = std::ranges::find(tokens, *turn_start_token);
    if (first == tokens.end()) return 0;
    const auto second = std::find(first + 1, tokens.end(), *turn_start_token);
    return second == tokens.end() ? 0 : static_cast<int32_t>(second - tokens.begin());
  }

  api::Result<Tokens> EncodeMessages(std::span<const api::Message> messages,
                                     std::span<const api::Tool> tools) const {
    auto rendered = prompt_template.Render(messages, tools, output_plan.thinking(), Ending());
    if (!rendered) return std::unexpected(rendered.error());
    output_plan.DetectOpenThinking(*rendered);
    return Encode(*rendered);
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

  // In tokens of the prompt; 0 where it cannot be found. A template may change a message's text, so the end of
  // a message is found by rendering the conversation up to there.
  int32_t EndOfMessage(const api::ChatPrompt& chat, size_t index, const BuiltPrompt& prompt) const {
    const api::Message& message = chat.messages[index];
    if (index == 0 && message.role == "system") return prompt.system_tokens;
    const auto rendered =
        prompt_template.Render(std::span(chat.messages).first(index + 1), chat.tools, output_plan.thinking());
    const auto tokens = rendered ? Encode(*rendered) : std::unexpected(rendered.error());
    if (!tokens) return 0;
    const auto parted = std::ranges::mismatch(*tokens, prompt.tokens);
    const auto common = static_cast<int32_t>(parted.in1 - tokens->begin());
    const std::vector<int32_t>& ends = prompt.boundaries;
    if (ends.empty()) return std::min(common, static_cast<int32_t>(prompt.tokens.size()) - 1);
    // What follows the message begins at the last boundary of the common part. A template leaves a last message
    // of the assistant open, so that it ends behind that part.
    const auto behind = std::ranges::upper_bound(ends, common);
    const bool open = message.role == "assistant" && parted.in1 == tokens->end();
    if (open && index + 1 < chat.messages.size()) return behind == ends.end() ? 0 : *behind;
    return behind == ends.begin() ? 0 : *(behind - 1);
  }

  api::Result<FittedPrompt> operator()(const api::ChatPrompt& chat) const {
    return FitMessages(chat.messages, num_ctx, request.overflow, [&](std::span<const api::Message> messages) {
      return EncodeMessages(messages, chat.tools);
    });
  }

  api::Result<FittedPrompt> operator()(const api::RawPrompt& raw) const {
    auto tokens = EncodeText(
        raw.text, raw.parse_special ? tokenizer::SpecialTokens::kParse : tokenizer::SpecialTokens::kAsText);
    if (!tokens) return std::unexpected(tokens.error());
    if (raw.add_special) AddBos(*tokens);
    return FitTokens(std::move(*tokens), num_ctx, request.params.num_keep, request.overflow);
  }

  void AddBos(Tokens& tokens) const {
    if (!tokenizer.add_bos() || (!tokens.empty() && tokens.front() == *tokenizer.bos_id())) return;
    tokens.insert(tokens.begin(), *tokenizer.bos_id());
  }

  api::Result<FittedPrompt> operator()(const api::TokenPrompt& prompt) const {
    if (auto known = CheckIds(prompt.tokens, request.prompt_only ? "tokens" : "prompt"); !known) {
      return std::unexpected(known.error());
    }
    return FitTokens(prompt.tokens, num_ctx, request.params.num_keep, request.overflow);
  }

  api::Result<FittedPrompt> operator()(const api::MixedPrompt& mixed) const {
    Tokens tokens;
    for (size_t i = 0; i < mixed.pieces.size(); ++i) {
      const api::MixedPrompt::Piece& piece = mixed.pieces[i];
      const bool as_text = piece.tokens.empty();
      if (auto known = CheckIds(piece.tokens, "prompt"); !known) return std::unexpected(known.error());
      auto encoded = as_text ? EncodeText(piece.text, tokenizer::SpecialTokens::kParse) : piece.tokens;
      if (!encoded) return std::unexpected(encoded.error());
      if (as_text && i == 0) AddBos(*encoded);
      tokens.insert(tokens.end(), encoded->begin(), encoded->end());
    }
    return FitTokens(std::move(tokens), num_ctx, request.params.num_keep, request.overflow);
  }

  api::Result<Tokens> EncodeFim(std::string_view prefix, std::string_view suffix) const {
    const auto rendered = prompt_template.RenderFim(prefix, suffix);
    if (!rendered) return std::unexpected(rendered.error());
    return Encode(*rendered);
  }

  api::Result<Tokens> Encode(const std::vector<PromptSegment>& rendered) const {
    std::vector<tokenizer::Segment> segments;
    segments.reserve(rendered.size());
    for (const auto& segment : rendered) segments.push_back({segment.text, segment.from_template});
    auto tokens = EncodeBounded(segments);
    // Go templates leave BOS to the tokenizer.
    if (tokens && !prompt_template.go_source().empty()) AddBos(*tokens);
    return tokens;
  }

  api::Result<Tokens> EncodeText(std::string_view text, tokenizer::SpecialTokens special) const {
    const std::array segments{tokenizer::Segment{text, special == tokenizer::SpecialTokens::kParse}};
    return EncodeBounded(segments);
  }

  // kContextLengthExceeded: the text is beyond the bounds. Long texts are refused by their bytes, without being read.
  api::Result<Tokens> EncodeBounded(std::span<const tokenizer::Segment> segments) const {
    const api::TextBounds bounds = request.prompt_only
                                       ? api::TextBounds{kDescribedBytesMax, kDescribedTokensMax}
                                       : api::TextBoundsFor(num_ctx, request.overflow);
    size_t bytes = 0;
    for (const auto& segment : segments) bytes += segment.text.size();
    if (bytes > bounds.bytes) return std::unexpected(BeyondBounds(bounds));
    auto tokens = tokenizer.EncodeSegments(segments, bounds.tokens);
    const bool beyond = !tokens && tokens.error().code == api::ErrorCode::kContextLengthExceeded;
    if (beyond) return std::unexpected(BeyondBounds(bounds));
    return tokens;
  }

  api::Error BeyondBounds(const api::TextBounds& bounds) const {
    if (!request.prompt_only) return api::ExceedsBounds(bounds, num_ctx);
    return {api::ErrorCode::kTooLarge,
            fmt::format("the text has more than {} tokens or {} bytes", bounds.tokens, bounds.bytes)};
  }

  std::string TextOf(const Tokens& tokens) const {
    tokenizer::Detokenizer detokenizer(shared_tokenizer);
    std::string text;
    for (const api::TokenId token : tokens) text += detokenizer.Append(token);
    return text + detokenizer.Flush();
  }

  // By a template that knows .Suffix.
  api::Result<FittedPrompt> BuildFimByTemplate(const api::FimPrompt& prompt) const {
    auto whole = EncodeFim(prompt.prefix, prompt.suffix);
    if (!whole || std::ssize(*whole) < num_ctx) {
      if (!whole) return std::unexpected(whole.error());
      return FittedPrompt{*std::move(whole), 0};
    }
    auto prefix = EncodeText(prompt.prefix, tokenizer::SpecialTokens::kAsText);
    if (!prefix) return std::unexpected(prefix.error());
    auto suffix = EncodeText(prompt.suffix, tokenizer::SpecialTokens::kAsText);
    if (!suffix) return std::unexpected(suffix.error());
    // Cut texts may take a token more at each of their ends than they had.
    constexpr int64_t kSeams = 8;
    const int64_t texts = std::ssize(*prefix) + std::ssize(*suffix);
    const int64_t markers = std::max<int64_t>(std::ssize(*whole) - texts, 0) + kSeams;
    if (auto fits = FitAround(*prefix, *suffix, markers); !fits) return std::unexpected(fits.error());
    auto cut = EncodeFim(TextOf(*prefix), TextOf(*suffix));
    if (!cut) return std::unexpected(cut.error());
    const auto dropped = static_cast<int32_t>(std::max<int64_t>(std::ssize(*whole) - std::ssize(*cut), 1));
    auto fitted = FitTokens(*std::move(cut), num_ctx, request.params.num_keep, api::Overflow::kRefuse);
    if (fitted) fitted->dropped = dropped;
    return fitted;
  }

  // The files of a FimPrompt, as far as `room` tokens hold them: the last ones, each whole. Models that know
  // repositories get their markers, others the texts.
  api::Result<Tokens> EncodeFiles(const std::vector<api::FimFile>& files, int64_t room) const {
    if (files.empty()) return Tokens{};
    const bool marked = fim_tokens->repository && fim_tokens->file;
    const auto text_of = [&](std::string_view text) {
      return EncodeText(text, tokenizer::SpecialTokens::kAsText);
    };
    Tokens head, tail;
    if (marked) {
      const auto name = text_of("project\n"), file = text_of("file\n");
      if (!name || !file) return std::unexpected(name ? file.error() : name.error());
      head.push_back(*fim_tokens->repository);
      head.insert(head.end(), name->begin(), name->end());
      tail.push_back(*fim_tokens->file);
      tail.insert(tail.end(), file->begin(), file->end());
    }
    std::vector<Tokens> kept;
    for (size_t i = files.size(); i-- > 0;) {
      auto text = text_of(marked ? files[i].name + "\n" + files[i].text : files[i].text + "\n");
      if (!text) return std::unexpected(text.error());
      if (marked) text->insert(text->begin(), *fim_tokens->file);
      const int64_t rest = room - std::ssize(head) - std::ssize(tail) - std::ssize(*text);
      if (rest < 0) break;
      room -= std::ssize(*text);
      kept.push_back(*std::move(text));
    }
    if (kept.empty()) return Tokens{};
    for (size_t i = kept.size(); i-- > 0;) head.insert(head.end(), kept[i].begin(), kept[i].end());
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }

  // Both texts are from outside: what looks like a control token in them is plain text.
  api::Result<FittedPrompt> operator()(const api::FimPrompt& prompt) const {
    if (prompt_template.SupportsFim()) return BuildFimByTemplate(prompt);
    if (!fim_tokens)
      return api::Fail(api::ErrorCode::kUnsupported, "the model does not support insert", "suffix");
    auto prefix = EncodeText(prompt.prefix, tokenizer::SpecialTokens::kAsText);
    if (!prefix) return std::unexpected(prefix.error());
    auto suffix = EncodeText(prompt.suffix, tokenizer::SpecialTokens::kAsText);
    if (!suffix) return std::unexpected(suffix.error());
    Tokens tokens = {fim_tokens->prefix};
    AddBos(tokens);
    const int64_t markers = std::ssize(tokens) + 2;
    const int64_t whole = markers + std::ssize(*prefix) + std::ssize(*suffix);
    if (auto fits = FitAround(*prefix, *suffix, markers); !fits) return std::unexpected(fits.error());
    tokens.insert(tokens.end(), prefix->begin(), prefix->end());
    tokens.push_back(fim_tokens->suffix);
    tokens.insert(tokens.end(), suffix->begin(), suffix->end());
    tokens.push_back(fim_tokens->middle);
    const int64_t dropped = whole - std::ssize(tokens);
    const int64_t room = int64_t{num_ctx} - 1 - std::ssize(tokens) - std::max(request.params.num_predict, 0);
    const auto files = EncodeFiles(prompt.files, room);
    if (!files) return std::unexpected(files.error());
    tokens.insert(std::ranges::find(tokens, fim_tokens->prefix), files->begin(), files->end());
    return FittedPrompt{std::move(tokens), static_cast<int32_t>(dropped)};
  }

  // Cuts what is farthest from the place between the two, until the context holds them, `markers` more tokens
  // and one of the answer: the end of the suffix down to half the room, then the begin of the prefix.
  api::Result<void> FitAround(Tokens& prefix, Tokens& suffix, int64_t markers) const {
    const int64_t room = int64_t{num_ctx} - 1 - markers;
    const int64_t wanted = std::ssize(prefix) + std::ssize(suffix);
    if (wanted <= room) return {};
    if (request.overflow == api::Overflow::kRefuse || room < 1) {
      return api::Fail(api::ErrorCode::kContextLengthExceeded,
                       fmt::format("request ({} tokens) exceeds the available context size ({} tokens)",
                                   wanted + markers, num_ctx),
                       "prompt");
    }
    const int64_t spare = std::max<int64_t>(room - std::ssize(prefix), room / 2);
    if (std::ssize(suffix) > spare) suffix.resize(static_cast<size_t>(spare));
    const int64_t cut = std::max<int64_t>(std::ssize(prefix) - (room - std::ssize(suffix)), 0);
    prefix.erase(prefix.begin(), prefix.begin() + cut);
    return {};
  }

  api::Result<void> CheckIds(const Tokens& ids, std::string_view field) const {
    for (const api::TokenId id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        return api::Fail(api::ErrorCode::kInvalidArgument,
                         fmt::format("{}: the model has no token {}", field, id), std::string(field));
      }
    }
    return {};
  }

  api::Result<FittedPrompt> operator()(const api::EmbedPrompt& embed) const {
    if (auto checked = CheckIds(embed.tokens, "input"); !checked) return std::unexpected(checked.error());
    return BuildEmbedPrompt(
        {.tokenizer = tokenizer,
         .rank_prompt = rank_prompt,
         .sentence_prompts = sentence_prompts,
         .num_ctx = num_ctx,
         .overflow = request.overflow,
         .encode =
             [this](std::string_view text) { return EncodeText(text, tokenizer::SpecialTokens::kAsText); }},
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
    if (auto known = CheckIds(biased, "logit_bias"); !known) return known;
    if (auto known = CheckIds(request.params.stop_token_ids, "stop_token_ids"); !known) return known;
    if (std::ssize(banned) < tokenizer.vocab_size()) return {};
    return api::Fail(api::ErrorCode::kInvalidArgument, "logit_bias bans every token", "logit_bias");
  }

  api::Result<FittedPrompt> operator()(const api::ContinuedPrompt& continued) const {
    if (auto known = CheckIds(continued.context, "context"); !known) return std::unexpected(known.error());
    auto turn = EncodeMessages(continued.messages, {});
    if (!turn) return std::unexpected(turn.error());
    Tokens tokens = continued.context;
    // The context already starts with BOS: drop the turn's own.
    const bool begins = !turn->empty() && tokenizer.bos_id() == turn->front() && !tokens.empty();
    tokens.insert(tokens.end(), turn->begin() + (begins ? 1 : 0), turn->end());
    const bool system_first = continued.context.empty() && BeginsWithSystem(continued.messages);
    const int32_t keep = request.params.num_keep;
    const int32_t system_tokens = SystemTokens(tokens, system_first);
    // A prompt that cannot be cut without losing the system text is rejected.
    const auto overflow = system_tokens + 1 < num_ctx ? request.overflow : api::Overflow::kRefuse;
    return FitTokens(std::move(tokens), num_ctx, keep < 0 ? keep : std::max(keep, system_tokens), overflow);
  }
};

// The tokens as one text; with `pieces` also each by itself.
api::TextDelta PromptText(const PromptContext& context, bool pieces, const Tokens& tokens) {
  api::TextDelta delta;
  tokenizer::Detokenizer detokenizer(context.tokenizer);
  for (const api::TokenId token : tokens) {
    delta.text += detokenizer.Append(token);
    if (!pieces) continue;
    api::TokenCandidate piece{std::string(context.tokenizer->TokenBytes(token)), token};
    delta.logprobs.push_back({std::move(piece), {}});
  }
  delta.text += detokenizer.Flush();
  return delta;
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

// The token of the first of these texts that is one token.
std::optional<api::TokenId> FindOneToken(const tokenizer::Tokenizer& tokenizer,
                                         std::initializer_list<std::string_view> texts) {
  for (const std::string_view text : texts) {
    const auto tokens = tokenizer.Encode(text, tokenizer::SpecialTokens::kParse);
    if (tokens && tokens->size() == 1 && tokenizer.TokenBytes(tokens->front()) == text)
      return tokens->front();
  }
  return std::nullopt;
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

}  // namespace

api::Result<BuiltPrompt> BuildPrompt(const PromptContext& context, const api::Request& request) {
  if (auto suits = SuitsTask(context.task, request); !suits) return std::unexpected(suits.error());
  const int32_t num_ctx = request.prompt_only ? INT32_MAX : ContextOf(context, request.params.num_ctx);
  auto output_plan = OutputPlan::Of(context.format, request);
  if (!output_plan) return std::unexpected(output_plan.error());
  const auto own = OwnTemplate(request);
  if (!own) return std::unexpected(own.error());
  const PromptTemplate& prompt_template = *own != nullptr ? **own : context.prompt_template;
  const PromptBuilder builder{context.tokenizer,
                              *context.tokenizer,
                              prompt_template,
                              num_ctx,
                              request,
                              context.turn_start_token,
                              context.fim_tokens,
                              *output_plan,
                              context.rank_prompt,
                              context.sentence_prompts};
  if (auto biased = builder.CheckBiases(); !biased) return std::unexpected(biased.error());
  auto fitted = std::visit(builder, request.prompt);
  if (!fitted) {
    return std::unexpected(
        api::WithContextOptions(fitted.error(), num_ctx, context.context_length, context.context_max));
  }
  if (fitted->tokens.empty() && !request.prompt_only)
    return api::Fail(api::ErrorCode::kInvalidArgument, "the prompt is empty", "prompt");
  BuiltPrompt prompt{std::move(fitted->tokens), num_ctx, fitted->dropped};
  prompt.types = std::move(fitted->types);
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
    api::TextDelta text = PromptText(context, pieces, prompt->tokens);
    if (text.text.size() > kDescribedBytesMax) {
      return {api::Failed{
          {api::ErrorCode::kTooLarge,
           fmt::format("the text has {} bytes, more than {}", text.text.size(), kDescribedBytesMax),
           {}}}};
    }
    events.emplace_back(std::move(text));
  }
  if (request.return_context) finished.context = std::move(prompt->tokens);
  events.emplace_back(std::move(finished));
  return events;
}

std::optional<FimTokens> FindFimTokens(const tokenizer::Tokenizer& tokenizer) {
  constexpr std::array<std::array<std::string_view, 3>, 5> kSpellings = {{
      {"<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>"},
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
      {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
      {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>", "<\uFF5Cfim\u2581end\uFF5C>"},
  }};
  for (const auto& spelling : kSpellings) {
    std::array<api::TokenId, 3> found = {};
    size_t count = 0;
    for (const std::string_view text : spelling) {
      const auto token = FindOneToken(tokenizer, {text});
      if (!token) break;
      found.at(count++) = *token;
    }
    if (count == found.size()) {
      return FimTokens{found[0], found[1], found[2],
                       FindOneToken(tokenizer, {"<|repo_name|>", "<|fim_repo|>", "<|reponame|>", "<reponame>",
                                                "<repo_name>", "<|fim_repo_name|>"}),
                       FindOneToken(tokenizer, {"<|file_sep|>", "<|file_separator|>", "<|filename|>",
                                                "<file_sep>", "<filename>"})};
    }
  }
  return std::nullopt;
}

}  // namespace quire::runner::engine
