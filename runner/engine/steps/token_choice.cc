#include "runner/engine/steps/token_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace quire::runner::engine {
namespace {

// For masks within a step, behind its first token: some 0.5 ms. What takes more is for the next step.
constexpr uint64_t kMaskStepsAhead = 50'000;

constexpr const char* kTooMuchParseMemory =
    "the output format is too deeply nested or too ambiguous: the answer so far takes too much memory";
constexpr const char* kTooManyWays =
    "the output format is too ambiguous: the answer so far can be read in too many ways";

// What makes a sampler read the vocabulary again, or sort it.
std::optional<size_t> KindOf(const api::GenerationParams& params, bool logprobs) {
  constexpr int32_t kFewCandidates = 1000;
  if (params.mirostat != 0 || params.dry_multiplier != 0) return std::nullopt;
  const auto bit = [](bool is_set, size_t position) { return is_set ? size_t{1} << position : 0; };
  return bit(logprobs, 0) |
         bit(params.temperature > 0 && (params.top_k <= 0 || params.top_k > kFewCandidates), 1) |
         bit(params.top_p < 1, 2) | bit(params.typical_p < 1, 3) | bit(params.xtc_probability > 0, 4);
}

}  // namespace

TokenChoice::TokenChoice(const api::GenerationParams& params, bool logprobs,
                         std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                         const std::unordered_set<api::TokenId>& end_of_generation,
                         std::vector<api::TokenId> banned_first,
                         std::shared_ptr<constraint::Constraint> constraint)
    : logit_processor_(params, end_of_generation, std::move(banned_first)),
      sampler_(params, [tokens = std::move(tokenizer)](api::TokenId id) { return tokens->TokenBytes(id); }),
      kind_(KindOf(params, logprobs)) {
  if (constraint) matcher_.emplace(std::move(constraint));
}

constraint::Matcher* TokenChoice::PlanMask() {
  mask_steps_ahead_ = kMaskStepsAhead;
  return matcher_ ? &*matcher_ : nullptr;
}

std::optional<api::TokenId> TokenChoice::SingleToken() {
  // Only the first of what may come is known: Choose() fails.
  if (matcher_->IsCutOff()) return std::nullopt;
  return matcher_->SingleAllowedToken();
}

bool TokenChoice::AcceptSingleToken(api::TokenId token) {
  RecordState();
  if (!matcher_->Accept(token)) return false;  // as above
  sampler_.SkipOne();
  return true;
}

std::optional<api::ResumeState> TokenChoice::StateNow() const {
  const std::optional<float> sampler = sampler_.state();
  if (!matcher_ && !sampler) return std::nullopt;
  return api::ResumeState{.sampler = sampler, .mask_steps = matcher_ ? matcher_->mask_steps() : 0};
}

void TokenChoice::Replay(api::TokenId token) {
  sampler_.SkipOne();
  if (matcher_) matcher_->Replay(token);
}

void TokenChoice::Restore(const std::optional<api::ResumeState>& state) {
  if (!state) return;
  if (state->sampler) sampler_.set_state(*state->sampler);
  if (matcher_) matcher_->RestoreMaskSteps(state->mask_steps);
}

api::Result<void> TokenChoice::CheckFormat() {
  if (matcher_->IsTooLarge()) return std::unexpected(ParseMemoryError());
  if (matcher_->IsCutOff()) return api::Fail(api::ErrorCode::kUnsupported, kTooManyWays);
  if (matcher_->IsTooExpensive()) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     "the output format is too ambiguous: one token takes too much work");
  }
  if (matcher_->IsDeadEnd()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the vocabulary cannot produce the required output");
  }
  return {};
}

api::Result<api::TokenId> TokenChoice::Choose(std::span<const float> logits,
                                              std::span<const api::TokenId> tokens, int32_t output_tokens,
                                              std::optional<api::TokenId> closing,
                                              sampler::Workspace& workspace) {
  // Every position's mask is made, whatever is chosen there: what masks cost depends on the tokens alone.
  if (matcher_) matcher_->Mask();
  if (closing && (!matcher_ || (!matcher_->IsCutOff() && matcher_->Accept(*closing)))) {
    sampler_.SkipOne();
    return *closing;
  }
  const auto processed = logit_processor_.Apply(logits, output_tokens, workspace);
  if (!matcher_) return sampler_.Sample(processed, tokens, workspace);
  if (auto checked = CheckFormat(); !checked) return std::unexpected(checked.error());
  const auto allowed = matcher_->Mask().words();
  auto masked = workspace.Mask(processed, allowed);
  // Where the logit rules leave nothing of what the format allows, the format wins.
  const auto possible = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (processed.data() != logits.data() && std::ranges::none_of(masked, possible)) {
    masked = workspace.Mask(logits, allowed);
  }
  const auto sampled = sampler_.Sample(masked, tokens, workspace);
  if (sampled && !matcher_->Accept(*sampled)) {
    if (matcher_->IsCutOff()) return api::Fail(api::ErrorCode::kUnsupported, kTooManyWays);
    return api::Fail(api::ErrorCode::kInternal, "sampled a token that the output format does not allow");
  }
  return sampled;
}

api::Error TokenChoice::ParseMemoryError() { return {api::ErrorCode::kUnsupported, kTooMuchParseMemory}; }

}  // namespace quire::runner::engine
