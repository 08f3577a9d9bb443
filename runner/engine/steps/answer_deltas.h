// The tokens of an answer on their way into deltas: what they say, what is recorded of each, and from which
// state another runner goes on behind them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/base/event.h"
#include "api/base/ids.h"
#include "runner/engine/steps/answer_text.h"
#include "runner/engine/steps/delta_outbox.h"
#include "runner/sampler/logprobs.h"

namespace quire::runner::engine {

// Engine thread only.
class AnswerDeltas {
 public:
  struct Rules {
    bool hide_thinking = false;
    bool single_call = false;      // nothing comes out behind the first call
    bool delta_per_token = false;  // also for one that says nothing
  };

  AnswerDeltas(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, tokenizer::Detokenizer::StartAt start,
               AnswerText::Rules text, Rules rules);

  const AnswerText& text() const { return text_; }
  // It has the one call that it may have.
  bool is_done() const { return called_ && rules_.single_call; }

  // The next token, which was chosen from `state`.
  void Append(api::TokenId token, std::optional<api::ResumeState> state);
  // What was held back. REQUIRES: no stop string has ended it.
  void End() { text_.End(); }
  // Adds the log-probabilities of the next token; nothing: of one whose delta the client has.
  void AddLogprobs(api::TokenLogprob record) { unsent_logprobs_.push_back(std::move(record)); }
  // Where the context is full first.
  void SetShiftState(const std::optional<api::ResumeState>& state) { unsent_shift_ = state; }
  // What is certain since the last call.
  void EmitCertain(DeltaOutbox& outbox);

  api::TokenLogprob RecordOf(const sampler::Logprobs& computed) const;
  api::TokenCandidate CandidateOf(const sampler::Logprob& logprob) const;

 private:
  void Emit(api::TextDelta delta, DeltaOutbox& outbox);

  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const Rules rules_;
  AnswerText text_;
  output::OutputChunks chunks_;  // scratch
  bool called_ = false;
  std::vector<api::TokenLogprob> unsent_logprobs_;
  decltype(api::TextDelta::token_ids) unsent_ids_;
  std::optional<api::ResumeState> state_before_;  // the newest token
  std::optional<api::ResumeState> unsent_shift_;
};

}  // namespace quire::runner::engine
