// One request's answer: its tokens, how many of them the caches hold, its sampler, and the text on its way
// out.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "api/base/event.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "runner/constraint/matcher.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/engine/shares/step_plan.h"
#include "runner/engine/steps/answer_text.h"
#include "runner/engine/steps/delta_outbox.h"
#include "runner/engine/steps/prompt_report.h"
#include "runner/sampler/logit_processor.h"
#include "runner/sampler/logprobs.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::engine {

using Clock = std::chrono::steady_clock;

// Engine thread only.
//
// tokens() = prompt and answer; the first computed() of them are in the caches. Prefill computes the rest in
// chunks; the logits of the last token give the next one, and from then on each step computes the newest
// token, together with the forced tokens of the answer's format. Start() may be called again with a smaller
// computed(): what the caches lost is prefilled again, and nothing of that shows outside.
//
// One that is resumed takes the tokens it is given as sampled: they are prefilled with the prompt, and every
// part of the state is what it was after them. Those of a context that was shifted by then are sampled again,
// from the state before the shift on.
class ActiveGeneration {
 public:
  struct Setup {
    api::RequestId id;
    api::Request request;
    BuiltPrompt prompt;
    Clock::time_point arrived;
    api::ipc::Resume resume = {};
  };
  using Emit = DeltaOutbox::Emit;

  // `context_max`: tokens that the caches of its first runner could hold of one sequence. REQUIRES: these
  // hold them too.
  ActiveGeneration(Setup setup, int32_t context_max, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                   const std::unordered_set<api::TokenId>& end_of_generation, Emit emit);

  api::RequestId id() const { return id_; }
  std::span<const api::TokenId> tokens() const { return tokens_; }
  int32_t prompt_tokens() const { return prompt_tokens_; }
  int32_t computed() const { return computed_; }
  // Its last event is out.
  bool ended() const { return ended_ && outbox_.empty(); }
  int32_t output_tokens() const { return output_tokens_; }
  // Tokens that it may still take.
  int64_t WorkLeft() const {
    return std::ssize(tokens_) - computed_ + std::max<int64_t>(OutputLimit() - output_tokens_, 0);
  }
  // Since its first prefill began; nothing before, and once a token is sampled.
  std::optional<Clock::duration> PrefillTime(Clock::time_point now) const {
    return started_ && !first_token_ ? std::optional(now - *started_) : std::nullopt;
  }

  // Takes what a runner before has sampled, until all of it is taken (true) or the time has come. An answer
  // of thousands of tokens with a format takes seconds.
  bool Replay(Clock::time_point until);
  bool replayed() const { return !replay_; }

  // It runs (again): the caches hold the first `computed` tokens. The first time tells the client, with how
  // many of the prompt's were not computed for it and why not more.
  // `how`: of the cached prefix, as the client gets it; its counts are set here.
  void Start(int32_t computed, api::PromptReady how);

  // The tokens that a prefix in the caches may begin with; the last one is always computed.
  std::span<const api::TokenId> ReusableTokens() const {
    return std::span(tokens_).first(
        std::min(tokens_.size(), size_t{1} + static_cast<size_t>(report_.computed_max())));
  }
  // Rows of the next `count` tokens that need logits for the report of the prompt, and the alternatives of
  // each.
  PromptReport::Rows ScoredRows(int32_t count) const { return report_.RowsOf(computed_, count); }
  bool scores_prompt() const { return report_.has_logprobs() && !report_.done(); }
  int32_t prompt_alternatives() const { return report_.top(); }
  // The token that the logits of the first scored row are of, and those behind it. REQUIRES: scores_prompt().
  std::span<const api::TokenId> ScoredTokens() const {
    return std::span(tokens_).subspan(static_cast<size_t>(report_.told()));
  }
  // Reports the first of ScoredTokens(), in order. An error ends the answer.
  void ReportPrompt(std::span<const api::Result<sampler::Logprobs>> scores);

  int32_t prefill_left() const;
  int32_t decode_left() const;  // 0 while it prefills
  // Nothing more of it is to be computed for now, or ever.
  bool backpressured() const { return ended_ || outbox_.backpressured(); }
  // The next `count` tokens to compute. REQUIRES: as many are left.
  std::span<const api::TokenId> Uncomputed(int32_t count) const;
  bool AllComputedAfter(int32_t count) const;

  // Before each step: whose mask must be there before it takes part. Null: nobody's.
  constraint::Matcher* PlanMask();
  bool has_mask() const { return !matcher_ || ended_ || matcher_->has_mask(); }

  // Kinds of samplers, each of which takes about the same time for a token of any answer; none: that varies.
  static constexpr size_t kSamplingKinds = 32;
  std::optional<size_t> sampling_kind() const { return sampling_kind_; }

  // The memory of the parse states of its format.
  size_t parse_bytes() const { return matcher_ ? matcher_->bytes() : 0; }
  void FailForParseMemory();

  void AddCredit(int32_t deltas) { outbox_.AddCredit(deltas); }

  // `count` more tokens are in the caches.
  void Computed(int32_t count);
  // Samples from the logits of the last token and emits what follows from it, up to Finished or Failed.
  // REQUIRES: every token is computed.
  void Sample(std::span<const float> logits, sampler::Workspace& workspace);
  bool AllowsDrafts() const { return params_.draft_num_predict != 0; }
  // Draft tokens that may follow the newest token: the rest of the answer, at most `limit`, 0 where it does
  // not decode or does not want drafts.
  int32_t DraftLimit(int32_t limit) const;
  // As Sample, and on through draft tokens while they equal the sampled ones. `rows`: the tokens of the step,
  // those that were not computed and the draft tokens behind them; `logits` [1 + drafted, vocab], of the
  // newest token and of the draft tokens. Returns how many of `rows` belong to the sequence now and are to be
  // Computed(). REQUIRES: all but the tokens of `rows` are computed.
  int32_t SampleAndVerify(std::span<const api::TokenId> rows, std::span<const float> logits,
                          sampler::Workspace& workspace);
  void RecordRollback(std::chrono::nanoseconds took) { draft_.rollback_ns += took.count(); }
  // The end of a request that is embedded rather than answered. REQUIRES: every token is computed.
  void FinishEmbedding(std::vector<float> vector);
  void Fail(api::Error error);

  // The caches cannot hold more of it, with nobody else there: the answer ends as at the end of a context.
  void EndOfContext();

  // True when the context is full and the request wants it shifted.
  bool needs_shift() const { return !ended_ && static_cast<int32_t>(tokens_.size()) >= num_ctx_; }
  struct Range {
    int32_t begin = 0;
    int32_t end = 0;
  };
  // Half of the tokens that need not be kept: what a shift drops.
  Range ShiftRange() const;
  // They are gone, from the caches too where `kept_computed`; otherwise Start() follows.
  void Shift(Range range, bool kept_computed);

 private:
  bool EndReplay(std::optional<api::ResumeState> state);
  // What the next token is chosen with, beside the tokens before it; nothing where these are all.
  std::optional<api::ResumeState> StateHere() const;
  void SetState(const std::optional<api::ResumeState>& state);
  // The next token fills the context.
  bool FillsContext() const { return static_cast<int32_t>(tokens_.size()) + 1 >= num_ctx_; }
  void AppendToken(api::TokenId token);
  // The token ends the answer, or is more of it.
  void AcceptToken(api::TokenId token);
  bool Ends(api::TokenId token) const;
  // The next token of the text that closes thinking, once that has taken all its tokens. The choice depends
  // on the tokens so far and nothing else.
  std::optional<api::TokenId> ClosingToken() const;
  bool thinking() const { return text_.thinking(); }
  api::Result<api::TokenId> Choose(std::span<const float> logits, sampler::Workspace& workspace);
  // Appends the forced tokens of the answer's format.
  void AppendForcedTokens();
  // Adds the token's log-probabilities to what the next delta carries.
  api::Result<void> RecordLogprobs(std::span<const float> logits, api::TokenId token);
  // The tokens of the prompt that have no log-probability: the first, or all.
  void ReportPromptTokens();
  api::TokenCandidate CandidateOf(const sampler::Logprob& logprob) const;
  api::TokenLogprob RecordOf(const sampler::Logprobs& computed) const;
  void EmitCertain();
  void EmitDelta(api::TextDelta delta);
  // With what of the text is held back, unless that has ended.
  void Finish(api::FinishReason reason);
  void FinishForTime();
  void AddFinished(api::FinishReason reason);
  api::Usage UsageNow() const;
  int64_t PromptNanoseconds() const;
  int64_t OutputNanoseconds() const;
  int32_t OutputLimit() const;
  // The answer has a line break and has taken longer than the request allows.
  bool TimeIsOver() const;

  const api::RequestId id_;
  const api::GenerationParams params_;
  const bool shift_;
  const bool logprobs_;
  const int32_t top_logprobs_;
  const bool return_context_;
  const bool delta_per_token_;
  const std::chrono::milliseconds predict_limit_;  // 0: none
  const bool report_progress_;
  const int32_t num_ctx_;
  // What a runner before has sampled, while it is taken over.
  struct Replaying {
    api::ipc::Resume resume;
    size_t next = 0;  // of its tokens
  };
  std::optional<Replaying> replay_;
  const std::optional<api::ipc::Spent> spent_;  // in runners before
  const int32_t prompt_dropped_;
  const int32_t system_tokens_;
  const int32_t prompt_tokens_;
  const bool begun_;  // runners before have sent some of the answer
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const std::unordered_set<api::TokenId>& end_of_generation_;
  DeltaOutbox outbox_;
  PromptReport report_;

  std::vector<api::TokenId> tokens_;
  int32_t computed_ = 0;
  bool prefilling_ = true;
  int32_t cached_tokens_ = 0;

  sampler::LogitProcessor logit_processor_;
  sampler::Sampler sampler_;
  const std::optional<size_t> sampling_kind_;
  std::optional<constraint::Matcher> matcher_;  // of the answer's format
  uint64_t mask_steps_ahead_ = 0;               // that masks of further tokens may take in the step
  AnswerText text_;
  output::OutputChunks chunks_;  // scratch
  const bool hide_thinking_;
  const ThinkingBudget thinking_budget_;
  const bool single_call_;
  bool called_ = false;       // and with single_call_ nothing more comes out
  bool in_thinking_ = false;  // at its end
  std::vector<api::TokenLogprob> unsent_logprobs_;
  decltype(api::TextDelta::token_ids) unsent_ids_;
  int32_t output_tokens_ = 0;
  int32_t reasoning_tokens_ = 0;
  size_t closing_tokens_ = 0;                     // sampled or not, since thinking had all its tokens
  std::optional<api::ResumeState> state_here_;    // where the next token is being chosen
  std::optional<api::ResumeState> state_before_;  // before the newest token
  std::optional<api::ResumeState> unsent_shift_;  // where the context was full first
  bool shift_recorded_ = false;
  api::DraftUsage draft_;
  bool ended_ = false;

  const Clock::time_point arrived_;
  const std::chrono::nanoseconds build_time_;
  std::string sampling_;  // PromptReady::sampling, until that is sent
  std::optional<Clock::time_point> started_;
  std::optional<Clock::time_point> first_token_;
};

}  // namespace quire::runner::engine
