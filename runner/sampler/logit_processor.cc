#include "runner/sampler/logit_processor.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace quire::runner::sampler {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

LogitProcessor::LogitProcessor(const api::GenerationParams& params,
                               const std::unordered_set<TokenId>& end_of_generation,
                               std::vector<TokenId> banned_first)
    : banned_first_(std::move(banned_first)),
      ends_from_(params.ignore_eos ? std::numeric_limits<int32_t>::max() : params.min_tokens) {
  for (const api::LogitBias& bias : params.logit_bias) {
    if (bias.bias >= api::kLogitBiasMax) {
      forced_.push_back(bias.token);
    } else {
      biases_.push_back({bias.token, bias.bias <= -api::kLogitBiasMax ? kNegativeInfinity : bias.bias});
    }
  }
  if (ends_from_ > 0) ends_.assign(end_of_generation.begin(), end_of_generation.end());
  if (params.min_tokens > 0 && !params.ignore_eos) {
    ends_.insert(ends_.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  }
}

std::span<const float> LogitProcessor::Apply(std::span<const float> logits, int32_t output_tokens,
                                             Workspace& workspace) const {
  const bool keeps_ends = output_tokens >= ends_from_ || ends_.empty();
  const bool first = output_tokens == 0 && !banned_first_.empty();
  if (biases_.empty() && forced_.empty() && keeps_ends && !first) return logits;
  std::vector<float>& processed = workspace.processed;
  const auto known = [&logits](TokenId id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  if (std::ranges::any_of(forced_, known)) {
    processed.assign(logits.size(), kNegativeInfinity);
    for (const TokenId id : forced_) {
      if (known(id)) processed[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
    }
    return processed;
  }
  processed.assign(logits.begin(), logits.end());
  for (const api::LogitBias& bias : biases_) {
    if (known(bias.token)) processed[static_cast<size_t>(bias.token)] += bias.bias;
  }
  const auto ban = [&](const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      if (known(id)) processed[static_cast<size_t>(id)] = kNegativeInfinity;
    }
  };
  if (first) ban(banned_first_);
  if (!keeps_ends) ban(ends_);
  return processed;
}

}  // namespace quire::runner::sampler
