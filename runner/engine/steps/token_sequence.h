// The tokens of a prompt and its answer, and how many of them the caches hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::engine {

// Engine thread only. The first computed() of tokens() are in the caches. Prefill computes the rest in
// chunks; from then on each step computes the newest token, with the forced ones behind it.
class TokenSequence {
 public:
  struct Range {
    int32_t begin = 0;
    int32_t end = 0;
  };

  // `num_ctx`: tokens that it may have in all.
  TokenSequence(std::vector<api::TokenId> prompt, int32_t num_ctx)
      : num_ctx_(num_ctx), prompt_tokens_(static_cast<int32_t>(prompt.size())), tokens_(std::move(prompt)) {}

  std::span<const api::TokenId> tokens() const { return tokens_; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t num_ctx() const { return num_ctx_; }
  int32_t prompt_tokens() const { return prompt_tokens_; }
  int32_t computed() const { return computed_; }
  bool prefilling() const { return prefilling_; }
  int32_t prefill_left() const { return prefilling_ ? size() - computed_ : 0; }
  int32_t decode_left() const { return prefilling_ ? 0 : size() - computed_; }
  bool is_full() const { return size() >= num_ctx_; }
  bool is_full_with_next() const { return size() + 1 >= num_ctx_; }
  bool AllComputedAfter(int32_t count) const { return computed_ + count == size(); }
  // The next `count` tokens to compute. REQUIRES: as many are left.
  std::span<const api::TokenId> Uncomputed(int32_t count) const {
    return tokens().subspan(static_cast<size_t>(computed_), static_cast<size_t>(count));
  }

  void Reserve(int32_t more) { tokens_.reserve(tokens_.size() + static_cast<size_t>(more)); }
  void Append(api::TokenId token) { tokens_.push_back(token); }
  // The caches hold the first `computed` tokens; the rest is prefilled (again).
  void Prefill(int32_t computed) {
    computed_ = computed;
    prefilling_ = true;
  }
  void EndPrefill() { prefilling_ = false; }
  // `count` more tokens are in the caches.
  void Computed(int32_t count) { computed_ += count; }
  // Half of the tokens behind the first `keep`: what a shift drops. The newest token is not in the caches yet
  // and stays.
  Range ShiftRange(int32_t keep) const {
    const int32_t begin = std::clamp(keep, 0, size() - 2);
    return {begin, begin + std::max((size() - 1 - begin) / 2, 1)};
  }
  // They are gone, from the caches too where `kept_computed`; otherwise Prefill() follows.
  void Drop(Range range, bool kept_computed) {
    tokens_.erase(tokens_.begin() + range.begin, tokens_.begin() + range.end);
    if (kept_computed) computed_ -= range.end - range.begin;
  }

 private:
  const int32_t num_ctx_;
  const int32_t prompt_tokens_;
  std::vector<api::TokenId> tokens_;
  int32_t computed_ = 0;
  bool prefilling_ = true;
};

}  // namespace quire::runner::engine
