#include "runner/engine/prompt/context_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/base/text_bounds.h"
#include "runner/work/work_budget.h"

namespace quire::runner::engine {
namespace {

constexpr size_t kCountedContexts = 16;  // of tokens of messages that will not fit

std::unexpected<api::Error> Exceeds(size_t tokens, int32_t num_ctx) {
  return std::unexpected(api::Error{
      .code = api::ErrorCode::kContextLengthExceeded,
      .message =
          fmt::format("request ({} tokens) exceeds the available context size ({} tokens)", tokens, num_ctx),
      .tokens = static_cast<int64_t>(tokens),
      .tokens_max = num_ctx});
}

bool Fits(size_t tokens, int32_t num_ctx) { return tokens < static_cast<size_t>(std::max(num_ctx, 0)); }

// The messages without the `drop` oldest that may be dropped.
std::vector<api::Message> Without(std::span<const api::Message> messages, size_t drop) {
  CountWork(messages.size() * 16);
  std::vector<api::Message> kept;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool droppable = messages[i].role != "system" && i + 1 < messages.size();
    if (droppable && drop > 0) {
      --drop;
    } else {
      kept.push_back(messages[i]);
    }
  }
  return kept;
}

size_t Droppable(std::span<const api::Message> messages) {
  size_t count = 0;
  for (size_t i = 0; i + 1 < messages.size(); ++i) count += messages[i].role != "system" ? 1 : 0;
  return count;
}

// Without the first bytes of its last message, as few as are enough; nothing where none of that is left.
std::optional<std::vector<api::TokenId>> CutLast(std::vector<api::Message> messages, int32_t num_ctx,
                                                 const EncodeMessages& encode) {
  if (messages.empty()) return std::nullopt;
  const std::string text = std::exchange(messages.back().content, {});
  const std::vector<api::Image> images = messages.back().images;
  std::optional<std::vector<api::TokenId>> longest;
  size_t low = 1;
  size_t high = text.size();
  const size_t close_enough = text.size() / 256;
  while (low < high) {
    const size_t cut = low + (high - low) / 2;
    size_t from = cut;  // characters are whole
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    messages.back().content = text.substr(from);
    for (size_t i = 0; i < images.size(); ++i)  // all of them stay
      messages.back().images[i].at = images[i].at - std::min(images[i].at, from);
    auto tokens = encode(messages, static_cast<size_t>(num_ctx));
    if (tokens && Fits(tokens->size(), num_ctx)) {
      longest = *std::move(tokens);
      high = cut;
    } else {
      low = cut + 1;
    }
    if (longest && high - low <= close_enough) break;
  }
  return longest;
}

// What became of a selection of messages.
enum class Selection : uint8_t { kFits, kTooLong, kRejected };

Selection SelectionOf(const api::Result<std::vector<api::TokenId>>& tokens, int32_t num_ctx) {
  if (tokens) return Fits(tokens->size(), num_ctx) ? Selection::kFits : Selection::kTooLong;
  return tokens.error().code == api::ErrorCode::kContextLengthExceeded ? Selection::kTooLong
                                                                       : Selection::kRejected;
}

}  // namespace

api::Result<FittedPrompt> FitMessages(std::span<const api::Message> messages, int32_t num_ctx,
                                      api::Overflow overflow, const EncodeMessages& encode) {
  api::TextBounds counted = api::TextBoundsFor(num_ctx, overflow);
  const size_t tokens_max = counted.tokens;
  counted.tokens = std::min(tokens_max, kCountedContexts * static_cast<size_t>(std::max(num_ctx, 1)));
  auto whole = encode(messages, counted.tokens);
  if (SelectionOf(whole, num_ctx) == Selection::kRejected) return std::unexpected(whole.error());
  if (!whole && overflow == api::Overflow::kRefuse) return std::unexpected(whole.error());
  if (whole && Fits(whole->size(), num_ctx)) return FittedPrompt{std::move(*whole), 0};
  if (overflow == api::Overflow::kRefuse) return Exceeds(whole->size(), num_ctx);

  // The rendered prompt shrinks as more messages are dropped, so bisection finds the smallest number to drop.
  // A selection that the template rejects counts like the next one that it renders; the final scan skips
  // rejected ones.
  size_t low = 1;
  size_t high = Droppable(messages) + 1;
  std::optional<size_t> shortest;
  if (whole) shortest = whole->size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    size_t drop = middle;
    auto tokens = encode(Without(messages, drop), counted.tokens);
    while (SelectionOf(tokens, num_ctx) == Selection::kRejected && ++drop < high) {
      tokens = encode(Without(messages, drop), counted.tokens);
    }
    if (SelectionOf(tokens, num_ctx) != Selection::kTooLong) {
      high = middle;
    } else {
      low = drop + 1;
      if (tokens) shortest = std::min(shortest.value_or(tokens->size()), tokens->size());
    }
  }
  const auto cut_to = [&](std::vector<api::TokenId> tokens) {
    if (!whole) whole = encode(messages, tokens_max);
    const size_t whole_tokens = whole ? whole->size() : tokens_max;
    const auto dropped = static_cast<int32_t>(whole_tokens - tokens.size());
    return FittedPrompt{std::move(tokens), dropped};
  };
  for (size_t drop = low; drop <= Droppable(messages); ++drop) {
    auto tokens = encode(Without(messages, drop), counted.tokens);
    if (tokens && Fits(tokens->size(), num_ctx)) return cut_to(*std::move(tokens));
  }
  if (overflow == api::Overflow::kTruncate) {
    auto cut = CutLast(Without(messages, Droppable(messages)), num_ctx, encode);
    if (cut) return cut_to(*std::move(cut));
  }
  if (!shortest) return std::unexpected(api::ExceedsBounds(counted, num_ctx));
  return Exceeds(*shortest, num_ctx);
}

api::Result<FittedPrompt> FitTokens(std::vector<api::TokenId> tokens, int32_t num_ctx, int32_t num_keep,
                                    api::Overflow overflow) {
  if (Fits(tokens.size(), num_ctx)) return FittedPrompt{std::move(tokens), 0};
  if (overflow == api::Overflow::kRefuse) return Exceeds(tokens.size(), num_ctx);
  const auto room = static_cast<size_t>(std::max(num_ctx - 1, 1));
  const size_t keep = num_keep < 0 ? room : std::min(static_cast<size_t>(num_keep), room);
  const size_t dropped = tokens.size() - room;
  tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(keep),
               tokens.begin() + static_cast<ptrdiff_t>(keep + dropped));
  return FittedPrompt{std::move(tokens), static_cast<int32_t>(dropped)};
}

}  // namespace quire::runner::engine
