// DRY: lowers the logits of tokens that would go on repeating a sequence of the text.
//
// A token that would extend a repetition of `length` tokens loses multiplier * base^(length - allowed_length). No
// repetition reaches across a sequence breaker, and tokens with one in their text lose nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/ids.h"
#include "api/base/request.h"

namespace quire::runner::sampler {

// Copyable; one thread per copy.
class DryPenalty {
 public:
  using TokenText = std::function<std::string_view(api::TokenId)>;  // the token's bytes

  // Inactive where the options say so, or where there is no `text`.
  DryPenalty(const api::GenerationParams& params, TokenText text);

  bool active() const { return window_ > 0 && multiplier_ > 0; }
  // `history`: the tokens of the sequence so far, newest last.
  void Apply(std::span<const api::TokenId> history, std::span<float> logits) const;

 private:
  // How many of the newest tokens no breaker ends in.
  size_t UnbrokenTokens(std::span<const api::TokenId> history) const;
  bool Breaks(api::TokenId token) const;

  double multiplier_;
  double base_;
  int32_t allowed_length_;
  int64_t window_;  // tokens
  std::vector<std::string> breakers_;
  TokenText text_;
};

}  // namespace quire::runner::sampler
