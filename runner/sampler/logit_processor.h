// Logit processor: applies logit_bias, min_tokens and ignore_eos of a request before sampling.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "api/base/request.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::sampler {

// Copyable; any thread.
class LogitProcessor {
 public:
  // `end_of_generation`: the tokens that ignore_eos and min_tokens ban; min_tokens bans stop_token_ids too.
  // Ids beyond the logits are passed over. `banned_first`: not as the first token of an answer.
  LogitProcessor(const api::GenerationParams& params, const std::unordered_set<TokenId>& end_of_generation,
                 std::vector<TokenId> banned_first = {});

  // The logits themselves while nothing applies, or their changed copy, valid until the workspace is used
  // again. -inf marks a token that must not come. `output_tokens`: of the answer so far.
  std::span<const float> Apply(std::span<const float> logits, int32_t output_tokens,
                               Workspace& workspace) const;

 private:
  std::vector<api::LogitBias> biases_;  // -inf: banned
  std::vector<TokenId> forced_;         // nothing but these may come, unless empty
  std::vector<TokenId> ends_;
  std::vector<TokenId> banned_first_;
  int32_t ends_from_ = 0;  // output tokens; an end may come after this many
};

}  // namespace quire::runner::sampler
