// How the next token of an answer is chosen: the rules on logits, the sampler and the mask of its format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/ids.h"
#include "api/base/options.h"
#include "runner/constraint/matcher.h"
#include "runner/sampler/logit_processor.h"
#include "runner/sampler/sampler.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

// Engine thread only. A choice depends on the logits, the tokens before it and state(), and on nothing else.
class TokenChoice {
 public:
  // `constraint` null: the answer is free. `banned_first`: as the first token of the answer.
  TokenChoice(const api::GenerationParams& params, bool logprobs,
              std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
              const std::unordered_set<api::TokenId>& end_of_generation,
              std::vector<api::TokenId> banned_first, std::shared_ptr<constraint::Constraint> constraint);

  // Kinds of samplers, each of which takes about the same time for a token of any answer; none: that varies.
  static constexpr size_t kKinds = 32;
  std::optional<size_t> kind() const { return kind_; }

  bool has_format() const { return matcher_.has_value(); }
  // The answer has a format and matches it, and nothing may follow.
  bool is_complete() { return matcher_ && matcher_->IsComplete(); }
  // Before each step: whose mask must be there before it takes part. Null: nobody's.
  constraint::Matcher* PlanMask();
  bool has_mask() const { return !matcher_ || matcher_->has_mask(); }
  // Within a step: the mask of a further token is there, within the work for that. True without a format.
  bool PrepareAhead() { return !matcher_ || matcher_->PrepareMask(mask_steps_ahead_); }
  // The only token that the format allows next, and whether it was taken. REQUIRES: has_format().
  std::optional<api::TokenId> SingleToken();
  bool AcceptSingleToken(api::TokenId token);
  // `closing`: taken instead of a sampled one where the format allows it.
  api::Result<api::TokenId> Choose(std::span<const float> logits, std::span<const api::TokenId> tokens,
                                   int32_t output_tokens, std::optional<api::TokenId> closing,
                                   sampler::Workspace& workspace);
  // Its memory does not wait for the reader.
  void EndFormat() { matcher_.reset(); }
  // The memory of the parse states of its format.
  size_t parse_bytes() const { return matcher_ ? matcher_->bytes() : 0; }
  static api::Error ParseMemoryError();

  // What the next token is chosen with, beside the tokens before it; nothing where these are all.
  void RecordState() { state_ = StateNow(); }
  const std::optional<api::ResumeState>& state() const { return state_; }
  // A runner before has chosen the token.
  void Replay(api::TokenId token);
  // Where the last token of them was.
  void Restore(const std::optional<api::ResumeState>& state);

 private:
  std::optional<api::ResumeState> StateNow() const;
  api::Result<void> CheckFormat();

  sampler::LogitProcessor logit_processor_;
  sampler::Sampler sampler_;
  const std::optional<size_t> kind_;
  std::optional<constraint::Matcher> matcher_;
  uint64_t mask_steps_ahead_ = 0;          // that masks of further tokens may take in the step
  std::optional<api::ResumeState> state_;  // where the next token is being chosen
};

}  // namespace quire::runner::engine
