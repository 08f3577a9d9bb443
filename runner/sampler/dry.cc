#include "runner/sampler/dry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

namespace quire::runner::sampler {
namespace {

using api::TokenId;

constexpr size_t kLengthMax = 256;     // tokens of a repetition; the penalty of more is beyond every logit
constexpr size_t kBreakerTokens = 64;  // before them, for the beginning of a breaker

// [i]: how many tokens that end i before the newest equal the newest ones, at most `limit`. Z function of the reversed
// history, in time linear in its length.
std::vector<size_t> Repetitions(std::span<const TokenId> history, size_t limit) {
  const size_t size = history.size();
  const auto at = [&](size_t i) { return history[size - 1 - i]; };
  std::vector<size_t> lengths(size, 0);
  size_t begin = 0;
  size_t end = 0;
  for (size_t i = 1; i < size; ++i) {
    size_t length = i < end ? std::min(lengths[i - begin], end - i) : 0;
    while (i + length < size && at(length) == at(i + length)) ++length;
    lengths[i] = length;
    if (i + length > end) {
      begin = i;
      end = i + length;
    }
  }
  for (size_t& length : lengths) length = std::min(length, limit);
  return lengths;
}

}  // namespace

DryPenalty::DryPenalty(const api::GenerationParams& params, TokenText text)
    : multiplier_(text ? double{params.dry_multiplier} : 0),
      base_(std::max(double{params.dry_base}, 1.0)),
      allowed_length_(std::max(params.dry_allowed_length, 1)),
      window_(params.dry_penalty_last_n),
      breakers_(params.dry_sequence_breakers),
      text_(std::move(text)) {
  std::erase(breakers_, std::string());
  if (window_ < 0) window_ = params.num_ctx > 0 ? params.num_ctx : std::numeric_limits<int64_t>::max();
}

bool DryPenalty::Breaks(TokenId token) const {
  const std::string_view text = text_(token);
  return std::ranges::any_of(
      breakers_, [text](const std::string& breaker) { return text.find(breaker) != std::string_view::npos; });
}

size_t DryPenalty::UnbrokenTokens(std::span<const TokenId> history) const {
  const auto tail = history.last(std::min(history.size(), kLengthMax + kBreakerTokens));
  std::string text;
  std::vector<size_t> ends;  // of each token's text
  for (const TokenId token : tail) {
    text += text_(token);
    ends.push_back(text.size());
  }
  size_t broken = 0;  // tokens up to the last one that a breaker ends in
  for (const std::string& breaker : breakers_) {
    const size_t found = text.rfind(breaker);
    if (found == std::string::npos) continue;
    const auto token = std::ranges::lower_bound(ends, found + breaker.size());
    broken = std::max(broken, static_cast<size_t>(token - ends.begin()) + 1);
  }
  return std::min(tail.size() - broken, kLengthMax);
}

void DryPenalty::Apply(std::span<const TokenId> history, std::span<float> logits) const {
  if (static_cast<uint64_t>(history.size()) > static_cast<uint64_t>(window_)) {
    history = history.last(static_cast<size_t>(window_));
  }
  const size_t limit = UnbrokenTokens(history);
  if (limit < static_cast<size_t>(allowed_length_)) return;
  const std::vector<size_t> lengths = Repetitions(history, limit);
  std::unordered_map<TokenId, size_t> longest;  // by the token that would extend the repetition
  for (size_t i = 1; i < lengths.size(); ++i) {
    if (lengths[i] < static_cast<size_t>(allowed_length_)) continue;
    size_t& length = longest[history[history.size() - i]];
    length = std::max(length, lengths[i]);
  }
  for (const auto& [token, length] : longest) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size() || Breaks(token)) continue;
    float& logit = logits[static_cast<size_t>(token)];
    if (!std::isfinite(logit)) continue;
    constexpr double kLowest = std::numeric_limits<float>::lowest();
    const double penalty = multiplier_ * std::pow(base_, static_cast<double>(length) - allowed_length_);
    logit = static_cast<float>(std::max(double{logit} - penalty, kLowest));
  }
}

}  // namespace quire::runner::sampler
