// What a request wants to know of its prompt's tokens: what they are, or their log-probabilities, too.
//
// Invariants: each token is reported once, in order, also where the prompt is computed again; which tokens a
// delta has depends on their number alone, so that a resumed answer skips those that the client has; until a
// token is told, the caches are not asked for what comes before it: its logits are computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "api/base/event.h"
#include "api/base/request.h"
#include "runner/engine/steps/delta_outbox.h"

namespace quire::runner::engine {

// Prompt tokens in one step that have their logits computed. Those take memory: 32 MiB, and no more than
// these rows.
inline int32_t ScoredTokensMax(int32_t vocab_size) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const int64_t rows = kBytes / (int64_t{std::max(vocab_size, 1)} * int64_t{sizeof(float)});
  return static_cast<int32_t>(std::clamp<int64_t>(rows, 16, 256));
}

// Engine thread only.
class PromptReport {
 public:
  static constexpr size_t kTokensPerDelta = 64;

  PromptReport(const api::Request& request, int32_t prompt_tokens)
      : size_(request.return_prompt_tokens || request.prompt_logprobs >= 0 ? prompt_tokens : 0),
        top_(request.prompt_logprobs),
        ends_echo_(request.return_prompt_tokens) {}

  int32_t told() const { return told_; }
  bool done() const { return told_ == size_; }
  int64_t deltas() const {
    return (size_ + int64_t{kTokensPerDelta} - 1) / int64_t{kTokensPerDelta};
  }                                     // of all
  int32_t top() const { return top_; }  // alternatives per token
  bool has_logprobs() const { return top_ >= 0; }
  // More of its log-probabilities are to come.
  bool scores() const { return has_logprobs() && !done(); }
  // The log-probabilities of the answer end with that of the token that ends it: one for each token that was
  // sampled.
  bool ends_echo() const { return ends_echo_; }
  // Tokens that may be in the caches when the prompt is computed (again).
  int32_t computed_max() const {
    return done() || !has_logprobs() ? std::numeric_limits<int32_t>::max() : std::max(told_ - 1, 0);
  }
  struct Rows {
    int32_t begin = 0, end = 0;
  };
  // Which rows of the next `count` tokens, before which `computed` are in the caches, need logits: those of
  // the tokens that come before one that is not told.
  Rows RowsOf(int32_t computed, int32_t count) const;
  // REQUIRES: not done().
  void Report(api::TokenLogprob token, DeltaOutbox& outbox);

 private:
  const int32_t size_;  // tokens to tell
  const int32_t top_;
  const bool ends_echo_;
  int32_t told_ = 0;
  std::vector<api::TokenLogprob> unsent_;
};

}  // namespace quire::runner::engine
