// DRY: lowers the logits of tokens that would go on repeating a sequence of the text.
//
// A token that would extend a repetition of `length` tokens loses multiplier * base^(length -
// allowed_length). No repetition reaches across a sequence breaker, and tokens with one in their text lose
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "api/base/ids.h"
#include "api/base/request.h"
#include "runner/sampler/breaker_scan.h"

namespace quire::runner::sampler {

// Copyable; one thread per copy.
class DryPenalty {
 public:
  using TokenText = BreakerScan::TokenText;

  // Inactive where the options say so, or where there is no `text`.
  DryPenalty(const api::GenerationParams& params, TokenText text);

  bool active() const { return breakers_.has_value(); }
  // `history`: the tokens of the sequence so far, newest last. What it does depends on the history alone; it
  // takes less time where the last call's history is its beginning. REQUIRES: active().
  void Apply(std::span<const api::TokenId> history, std::span<float> logits);

 private:
  double multiplier_;
  double base_;
  int32_t allowed_length_;
  int64_t window_;                       // tokens
  std::optional<BreakerScan> breakers_;  // none: inactive
};

}  // namespace quire::runner::sampler
