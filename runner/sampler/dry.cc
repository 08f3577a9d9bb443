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

// [i]: how many tokens that end i before the newest equal the newest ones, at most `limit`. Z function of the
// reversed history, in time linear in its length.
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
    : multiplier_(params.dry_multiplier),
      base_(std::max(double{params.dry_base}, 1.0)),
      allowed_length_(std::max(params.dry_allowed_length, 1)),
      window_(params.dry_penalty_last_n) {
  if (window_ < 0) window_ = params.num_ctx > 0 ? params.num_ctx : std::numeric_limits<int64_t>::max();
  if (!text || window_ == 0 || !(multiplier_ > 0)) return;
  breakers_.emplace(params.dry_sequence_breakers, std::move(text), kLengthMax + kBreakerTokens);
}

void DryPenalty::Apply(std::span<const TokenId> history, std::span<float> logits) {
  const auto window =
      static_cast<size_t>(std::min(static_cast<uint64_t>(history.size()), static_cast<uint64_t>(window_)));
  const size_t limit = std::min(breakers_->CountUnbroken(history, window), kLengthMax);
  history = history.last(window);
  if (limit < static_cast<size_t>(allowed_length_)) return;
  const std::vector<size_t> lengths = Repetitions(history, limit);
  std::unordered_map<TokenId, size_t> longest;  // by the token that would extend the repetition
  for (size_t i = 1; i < lengths.size(); ++i) {
    if (lengths[i] < static_cast<size_t>(allowed_length_)) continue;
    size_t& length = longest[history[history.size() - i]];
    length = std::max(length, lengths[i]);
  }
  for (const auto& [token, length] : longest) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size() || breakers_->Contains(token)) continue;
    float& logit = logits[static_cast<size_t>(token)];
    if (!std::isfinite(logit)) continue;
    constexpr double kLowest = std::numeric_limits<float>::lowest();
    const double penalty = multiplier_ * std::pow(base_, static_cast<double>(length) - allowed_length_);
    logit = static_cast<float>(std::max(double{logit} - penalty, kLowest));
  }
}

}  // namespace quire::runner::sampler
