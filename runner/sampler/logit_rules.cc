#include "runner/sampler/logit_rules.h"

#include <algorithm>
#include <limits>

namespace quire::runner::sampler {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

LogitRules::LogitRules(const api::GenerationParams& params,
                       const std::unordered_set<TokenId>& end_of_generation)
    : ends_from_(params.ignore_eos ? std::numeric_limits<int32_t>::max() : params.min_tokens) {
  for (const api::LogitBias& bias : params.logit_bias) {
    if (bias.bias >= api::kLogitBiasMax) {
      forced_.push_back(bias.token);
    } else {
      biases_.push_back({bias.token, bias.bias <= -api::kLogitBiasMax ? kNever : bias.bias});
    }
  }
  if (ends_from_ > 0) ends_.assign(end_of_generation.begin(), end_of_generation.end());
}

std::span<const float> LogitRules::Apply(std::span<const float> logits, int32_t output_tokens,
                                         Workspace& workspace) const {
  const bool keeps_ends = output_tokens >= ends_from_ || ends_.empty();
  if (biases_.empty() && forced_.empty() && keeps_ends) return logits;
  std::vector<float>& ruled = workspace.ruled;
  const auto known = [&logits](TokenId id) { return id >= 0 && static_cast<size_t>(id) < logits.size(); };
  if (std::ranges::any_of(forced_, known)) {
    ruled.assign(logits.size(), kNever);
    for (const TokenId id : forced_) {
      if (known(id)) ruled[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
    }
    return ruled;
  }
  ruled.assign(logits.begin(), logits.end());
  for (const api::LogitBias& bias : biases_) {
    if (known(bias.token)) ruled[static_cast<size_t>(bias.token)] += bias.bias;
  }
  if (keeps_ends) return ruled;
  for (const TokenId id : ends_) {
    if (known(id)) ruled[static_cast<size_t>(id)] = kNever;
  }
  return ruled;
}

}  // namespace quire::runner::sampler
