// One request's answer: its tokens, how they are chosen, and the text on its way out.
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
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/engine/steps/answer_deltas.h"
#include "runner/engine/steps/delta_outbox.h"
#include "runner/engine/steps/prompt_report.h"
#include "runner/engine/steps/request_clock.h"
#include "runner/engine/steps/token_choice.h"
#include "runner/engine/steps/token_sequence.h"
#include "runner/sampler/logprobs.h"

namespace quire::runner::engine {

// Ends thinking once it has taken all its tokens. The choice depends on the tokens so far and nothing else.
class ThinkingLimit {
 public:
  explicit ThinkingLimit(ThinkingBudget budget) : budget_(std::move(budget)) {}

  // The next token of the text that closes thinking.
  std::optional<api::TokenId> ClosingToken(bool thinking) const {
    if (tokens_ < budget_.tokens_max || closing_tokens_ >= budget_.closing.size() || !thinking) {
      return std::nullopt;
    }
    return budget_.closing[closing_tokens_];
  }
  // A token comes, before which the answer is `thinking`.
  void Count(bool thinking) {
    closing_tokens_ = thinking && tokens_ >= budget_.tokens_max ? closing_tokens_ + 1 : 0;
    if (thinking) ++tokens_;
  }
  int32_t tokens() const { return tokens_; }  // of thinking

 private:
  const ThinkingBudget budget_;
  int32_t tokens_ = 0;
  size_t closing_tokens_ = 0;  // sampled or not, since thinking had all its tokens
};

// Engine thread only.
//
// Start() may be called again with a smaller sequence().computed(): what the caches lost is prefilled again,
// and nothing of that shows outside.
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
  const TokenSequence& sequence() const { return sequence_; }
  const PromptReport& report() const { return report_; }
  const RequestClock& clock() const { return clock_; }
  TokenChoice& choice() { return choice_; }
  const TokenChoice& choice() const { return choice_; }
  // Its last event is out.
  bool ended() const { return ended_ && outbox_.empty(); }
  int32_t output_tokens() const { return output_tokens_; }
  // Tokens that it may still take.
  int64_t WorkLeft() const {
    return sequence_.size() - sequence_.computed() +
           std::max<int64_t>(int64_t{OutputLimit()} - output_tokens_, 0);
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
    const auto tokens = sequence_.tokens();
    return tokens.first(std::min(tokens.size(), size_t{1} + static_cast<size_t>(report_.computed_max())));
  }
  // The token that the logits of the first scored row are of, and those behind it. REQUIRES:
  // report().scores().
  std::span<const api::TokenId> ScoredTokens() const {
    return sequence_.tokens().subspan(static_cast<size_t>(report_.told()));
  }
  // Reports the first of ScoredTokens(), in order. An error ends the answer.
  void ReportPrompt(std::span<const api::Result<sampler::Logprobs>> scores);

  // Nothing more of it is to be computed for now, or ever.
  bool backpressured() const { return ended_ || outbox_.backpressured(); }
  void AddCredit(int32_t deltas) { outbox_.AddCredit(deltas); }

  // `count` more tokens are in the caches.
  void Computed(int32_t count);
  // Samples from the logits of the last token and emits what follows from it, up to Finished or Failed.
  // REQUIRES: every token is computed.
  void Sample(std::span<const float> logits, sampler::Workspace& workspace);
  bool AllowsDrafts() const { return rules_.params.draft_num_predict != 0; }
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
  bool needs_shift() const { return !ended_ && sequence_.is_full(); }
  TokenSequence::Range ShiftRange() const;
  // They are gone, from the caches too where `kept_computed`; otherwise Start() follows.
  void Shift(TokenSequence::Range range, bool kept_computed) { sequence_.Drop(range, kept_computed); }

 private:
  // What the request says.
  struct Rules {
    api::GenerationParams params;
    bool shift = false;
    bool logprobs = false;
    int32_t top_logprobs = 0;
    bool return_context = false;
    std::chrono::milliseconds predict_limit{};  // 0: none
    bool report_progress = false;
    int32_t prompt_dropped = 0;
    int32_t system_tokens = 0;
    std::chrono::nanoseconds build_time{};
  };
  // What a runner before has sampled, while it is taken over.
  struct Replaying {
    api::ipc::Resume resume;
    size_t next = 0;  // of its tokens
  };

  bool EndReplay(const std::optional<api::ResumeState>& state);
  // The token ends the answer, or is more of it.
  void AcceptToken(api::TokenId token);
  void AppendToken(api::TokenId token);
  bool Ends(api::TokenId token) const;
  // Appends the forced tokens of the answer's format.
  void AppendForcedTokens();
  // The tokens of the prompt that have no log-probability: the first, or all.
  void ReportPromptTokens();
  // With what of the text is held back, unless that has ended.
  void Finish(api::FinishReason reason);
  void FinishForTime();
  void AddFinished(api::FinishReason reason, bool in_thinking);
  api::Usage UsageNow() const;
  int32_t OutputLimit() const;
  // The answer has a line break and has taken longer than the request allows.
  bool TimeIsOver() const;

  const api::RequestId id_;
  const Rules rules_;
  const std::unordered_set<api::TokenId>& end_of_generation_;
  TokenSequence sequence_;
  PromptReport report_;
  RequestClock clock_;
  DeltaOutbox outbox_;
  TokenChoice choice_;
  AnswerDeltas deltas_;
  ThinkingLimit thinking_;
  std::optional<Replaying> replay_;
  std::string sampling_;  // PromptReady::sampling, until that is sent
  int32_t cached_tokens_ = 0;
  int32_t output_tokens_ = 0;
  bool shift_recorded_ = false;
  api::DraftUsage draft_;
  bool ended_ = false;
};

}  // namespace quire::runner::engine
