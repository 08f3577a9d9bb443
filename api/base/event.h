// The events of one request, in order: PromptReady, PrefillProgress*, TextDelta*, then exactly one of
// Finished or Failed. Free of any dialect. Plain data.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"

namespace quire::api {

// Where a prompt leaves what the caches hold of its isolation key. The texts are bounded excerpts, valid
// UTF-8.
struct Divergence {
  static constexpr size_t kTextBytesMax = 256;  // of each text

  int32_t at = 0;           // tokens that agree
  std::string shared = {};  // the end of what agrees
  std::string prompt = {};  // the prompt's tokens from there on
  std::string cached = {};  // the cached ones, of the prefix that was used last
};

// The prompt is rendered, tokenized and admitted; prefill starts.
struct PromptReady {
  int32_t prompt_tokens = 0;  // includes cached
  int32_t cached_tokens = 0;
  // Why not all of it: cold | diverged@N (tokens) | evicted | salt | layout | off. Empty: all that can be
  // was.
  std::string miss = {};
  std::optional<Divergence> divergence = {};
  int64_t build_ns = 0;    // rendering and tokenizing
  int64_t restore_ns = 0;  // finding and restoring the cached prefix
  // Sampling of this answer that the model's files recommend: a JSON object as of Modelfile PARAMETERs, or
  // empty.
  std::string sampling = {};
};

// Some more of the prompt is computed, but not all of it; only for Request::report_progress.
struct PrefillProgress {
  int32_t computed_tokens = 0;  // includes cached; less than PromptReady::prompt_tokens
};

struct TokenCandidate {
  std::string bytes;  // the token's bytes; need not be valid UTF-8 alone
  TokenId id = 0;
  float logprob = 0;  // natural log, from the model's unmodified distribution
};

struct TokenLogprob {
  TokenCandidate chosen;
  std::vector<TokenCandidate> top;  // best first
  int32_t rank = 0;                 // of `chosen` among all tokens, from 1; 0: it has no log-probability
};

// What the next runner needs beside the tokens to go on as this one would, as it was before one of them.
// Opaque to the daemon.
struct ResumeState {
  std::optional<float> sampler = {};  // only where the sampler has one
  uint64_t mask_steps = 0;  // what the masks of the answer's format may still take; 0 also without one
};

// Some more of the answer. `text` is valid UTF-8 and may be empty when only logprobs arrived.
struct TextDelta {
  std::string text;
  std::vector<TokenLogprob> logprobs = {};  // of the tokens sampled since the last delta; only when asked for
  int32_t tokens = 0;                       // tokens sampled since the last delta
  // An answer is thinking first; what stands together in one delta came in this order: thinking, text, calls.
  std::string thinking = {};
  std::vector<ToolCall> tool_calls = {};  // whole calls, each with an id
  // The ids of `tokens`, for ipc::Resume; in place, as a delta has one token nearly always.
  boost::container::small_vector<TokenId, 4> token_ids = {};
  // For ipc::Resume, and only where there is such a state: before the last of `tokens`; and before the one of
  // them at which the context was full for the first time, where it is shifted.
  std::optional<ResumeState> state = {};
  std::optional<ResumeState> state_at_shift = {};
  // The prompt's tokens, in order, before the first delta of the answer; only when asked for. The first token
  // has no log-probability, and none has where only the tokens were asked for.
  std::vector<TokenLogprob> prompt = {};
};

enum class FinishReason : uint8_t {
  kStop,    // end-of-generation token or stop string
  kLength,  // num_predict or the context
};

// Speculative decoding of one answer.
struct DraftUsage {
  int32_t rounds = 0;                         // steps with draft tokens
  int32_t drafted = 0;                        // draft tokens proposed
  std::vector<int32_t> accepted_by_position;  // [position in a round]: how often it was right
  int64_t rollback_ns = 0;                    // time spent on rollback of rejected drafts
  int32_t accepted() const {
    return std::accumulate(accepted_by_position.begin(), accepted_by_position.end(), 0);
  }
};

struct Usage {
  int32_t prompt_tokens = 0;  // includes cached
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;  // sampled tokens, the end-of-generation token not counted
  int64_t queue_ns = 0;       // from arrival at the runner to the start of prefill
  int64_t prompt_ns = 0;      // start of prefill to the first sampled token
  int64_t output_ns = 0;      // first sampled token to the end
  DraftUsage draft = {};
  int32_t reasoning_tokens = 0;  // of output_tokens: thinking and the marker that ends it
};

struct Finished {
  FinishReason reason = FinishReason::kStop;
  std::string stop_string;  // the stop string that matched, or empty
  Usage usage;
  int32_t prompt_dropped = 0;         // prompt tokens left out to fit the context; > 0 means truncated
  bool in_thinking = false;           // the answer ended before its thinking did
  std::vector<TokenId> context = {};  // prompt and answer, when asked for
  std::vector<float> embedding = {};  // of an EmbedPrompt
};

struct Failed {
  Error error;
};

using Event = std::variant<PromptReady, TextDelta, Finished, Failed, PrefillProgress>;

}  // namespace quire::api
