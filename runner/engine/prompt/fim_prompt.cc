#include "runner/engine/prompt/fim_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/engine/prompt/text_encoder.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/published_markup.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {
namespace {

using Tokens = std::vector<api::TokenId>;

struct FimTexts {
  Tokens prefix, suffix;

  int64_t size() const { return std::ssize(prefix) + std::ssize(suffix); }
};

// Texts are from outside: what looks like a control token in them is plain text.
api::Result<Tokens> EncodePlain(const FimContext& context, std::string_view text) {
  return context.encoder.EncodeText(text, tokenizer::SpecialTokens::kAsText);
}

api::Result<FimTexts> EncodeTexts(const FimContext& context, const api::FimPrompt& prompt) {
  auto prefix = EncodePlain(context, prompt.prefix);
  if (!prefix) return std::unexpected(prefix.error());
  auto suffix = EncodePlain(context, prompt.suffix);
  if (!suffix) return std::unexpected(suffix.error());
  return FimTexts{*std::move(prefix), *std::move(suffix)};
}

// Cuts what is farthest from the place between the two, until the context holds them, `markers` more tokens
// and one of the answer: the end of the suffix down to half the room, then the begin of the prefix.
api::Result<void> FitAround(const FimContext& context, FimTexts& texts, int64_t markers) {
  const int64_t room = int64_t{context.num_ctx} - 1 - markers;
  if (texts.size() <= room) return {};
  if (context.overflow == api::Overflow::kRefuse || room < 1) {
    return api::Fail(api::ErrorCode::kContextLengthExceeded,
                     fmt::format("request ({} tokens) exceeds the available context size ({} tokens)",
                                 texts.size() + markers, context.num_ctx),
                     "prompt");
  }
  Tokens &prefix = texts.prefix, &suffix = texts.suffix;
  const int64_t spare = std::max<int64_t>(room - std::ssize(prefix), room / 2);
  if (std::ssize(suffix) > spare) suffix.resize(static_cast<size_t>(spare));
  const int64_t cut = std::max<int64_t>(std::ssize(prefix) - (room - std::ssize(suffix)), 0);
  prefix.erase(prefix.begin(), prefix.begin() + cut);
  return {};
}

api::Result<Tokens> RenderFim(const FimContext& context, std::string_view prefix, std::string_view suffix) {
  const auto rendered = context.prompt_template.RenderFim(prefix, suffix, context.now);
  if (!rendered) return std::unexpected(rendered.error());
  return context.encoder.EncodeRendered(*rendered);
}

// By a template that knows .Suffix.
api::Result<FittedPrompt> BuildByTemplate(const FimContext& context, const api::FimPrompt& prompt) {
  auto whole = RenderFim(context, prompt.prefix, prompt.suffix);
  if (!whole) return std::unexpected(whole.error());
  if (std::ssize(*whole) < context.num_ctx) return FittedPrompt{*std::move(whole), 0};
  auto texts = EncodeTexts(context, prompt);
  if (!texts) return std::unexpected(texts.error());
  // Cut texts may take a token more at each of their ends than they had.
  constexpr int64_t kSeams = 8;
  const int64_t markers = std::max<int64_t>(std::ssize(*whole) - texts->size(), 0) + kSeams;
  if (auto fits = FitAround(context, *texts, markers); !fits) return std::unexpected(fits.error());
  auto cut = RenderFim(context, context.encoder.TextOf(texts->prefix), context.encoder.TextOf(texts->suffix));
  if (!cut) return std::unexpected(cut.error());
  const auto dropped = static_cast<int32_t>(std::max<int64_t>(std::ssize(*whole) - std::ssize(*cut), 1));
  auto fitted = FitTokens(*std::move(cut), context.num_ctx, context.num_keep, api::Overflow::kRefuse);
  if (fitted) fitted->dropped = dropped;
  return fitted;
}

// The files of a FimPrompt, as far as `room` tokens hold them: the last ones, each whole. Models that know
// repositories get their markers, others the texts.
api::Result<Tokens> EncodeFiles(const FimContext& context, const std::vector<api::FimFile>& files,
                                int64_t room) {
  if (files.empty()) return Tokens{};
  const FimTokens& known = *context.tokens;
  const bool marked = known.repository && known.file;
  Tokens head, tail;
  if (marked) {
    const auto name = EncodePlain(context, "project\n"), file = EncodePlain(context, "file\n");
    if (!name || !file) return std::unexpected(name ? file.error() : name.error());
    head.push_back(*known.repository);
    head.insert(head.end(), name->begin(), name->end());
    tail.push_back(*known.file);
    tail.insert(tail.end(), file->begin(), file->end());
  }
  std::vector<Tokens> kept;
  for (size_t i = files.size(); i-- > 0;) {
    auto text = EncodePlain(context, marked ? files[i].name + "\n" + files[i].text : files[i].text + "\n");
    if (!text) return std::unexpected(text.error());
    if (marked) text->insert(text->begin(), *known.file);
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

// The token of the first of these texts that is one token.
std::optional<api::TokenId> FindOneToken(const tokenizer::Tokenizer& tokenizer,
                                         std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    const auto tokens = tokenizer.Encode(text, tokenizer::SpecialTokens::kParse);
    if (tokens && tokens->size() == 1 && tokenizer.TokenBytes(tokens->front()) == text)
      return tokens->front();
  }
  return std::nullopt;
}

}  // namespace

api::Result<FittedPrompt> BuildFimPrompt(const FimContext& context, const api::FimPrompt& prompt) {
  if (context.prompt_template.SupportsFim()) return BuildByTemplate(context, prompt);
  if (!context.tokens) {
    return api::Fail(api::ErrorCode::kUnsupported, "the model does not support insert", "suffix");
  }
  auto texts = EncodeTexts(context, prompt);
  if (!texts) return std::unexpected(texts.error());
  Tokens tokens = {context.tokens->prefix};
  context.encoder.AddBos(tokens);
  const int64_t markers = std::ssize(tokens) + 2;
  const int64_t whole = markers + texts->size();
  if (auto fits = FitAround(context, *texts, markers); !fits) return std::unexpected(fits.error());
  tokens.insert(tokens.end(), texts->prefix.begin(), texts->prefix.end());
  tokens.push_back(context.tokens->suffix);
  tokens.insert(tokens.end(), texts->suffix.begin(), texts->suffix.end());
  tokens.push_back(context.tokens->middle);
  const int64_t dropped = whole - std::ssize(tokens);
  const int64_t room = int64_t{context.num_ctx} - 1 - std::ssize(tokens) - std::max(context.num_predict, 0);
  const auto files = EncodeFiles(context, prompt.files, room);
  if (!files) return std::unexpected(files.error());
  tokens.insert(std::ranges::find(tokens, context.tokens->prefix), files->begin(), files->end());
  return FittedPrompt{std::move(tokens), static_cast<int32_t>(dropped)};
}

std::optional<FimTokens> FindFimTokens(const tokenizer::Tokenizer& tokenizer) {
  for (const auto& spelling : tokenizer::kFimSpellings) {
    std::array<api::TokenId, 3> found = {};
    size_t count = 0;
    for (const std::string_view text : spelling) {
      const auto token = FindOneToken(tokenizer, {&text, 1});
      if (!token) break;
      found.at(count++) = *token;
    }
    if (count == found.size()) {
      return FimTokens{found[0], found[1], found[2], FindOneToken(tokenizer, tokenizer::kFimRepositoryTexts),
                       FindOneToken(tokenizer, tokenizer::kFimFileTexts)};
    }
  }
  return std::nullopt;
}

}  // namespace quire::runner::engine
