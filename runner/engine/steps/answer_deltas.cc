#include "runner/engine/steps/answer_deltas.h"

#include <string>
#include <utility>

namespace quire::runner::engine {

AnswerDeltas::AnswerDeltas(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                           tokenizer::Detokenizer::StartAt start, AnswerText::Rules text, Rules rules)
    : tokenizer_(std::move(tokenizer)), rules_(rules), text_(tokenizer_, start, std::move(text)) {}

void AnswerDeltas::Append(api::TokenId token, std::optional<api::ResumeState> state) {
  unsent_ids_.push_back(token);
  state_before_ = state;
  text_.Append(token);
}

void AnswerDeltas::EmitCertain(DeltaOutbox& outbox) {
  using Kind = output::OutputChunk::Kind;
  api::TextDelta delta;
  text_.PopCertain(chunks_);
  for (output::OutputChunk& chunk : chunks_) {
    if (is_done()) break;
    // Within a delta thinking comes first and calls last.
    const bool out_of_order = !delta.tool_calls.empty()
                                  ? chunk.kind != Kind::kCall
                                  : !delta.text.empty() && chunk.kind == Kind::kThinking;
    if (out_of_order) Emit(std::exchange(delta, {}), outbox);
    if (chunk.kind == Kind::kText) delta.text += chunk.text;
    if (chunk.kind == Kind::kThinking && !rules_.hide_thinking) delta.thinking += chunk.text;
    if (chunk.kind != Kind::kCall) continue;
    delta.tool_calls.push_back(std::move(chunk.call));
    called_ = true;
  }
  Emit(std::move(delta), outbox);
}

void AnswerDeltas::Emit(api::TextDelta delta, DeltaOutbox& outbox) {
  const bool silent = delta.text.empty() && delta.thinking.empty() && delta.tool_calls.empty();
  const bool due = rules_.delta_per_token && !unsent_ids_.empty();
  if (silent && unsent_logprobs_.empty() && !due) return;
  delta.logprobs = std::exchange(unsent_logprobs_, {});
  delta.tokens = static_cast<int32_t>(unsent_ids_.size());
  if (!unsent_ids_.empty()) {
    delta.state = state_before_;
    delta.state_at_shift = std::exchange(unsent_shift_, std::nullopt);
  }
  delta.token_ids = std::exchange(unsent_ids_, {});
  outbox.AddDelta(std::move(delta));
}

api::TokenCandidate AnswerDeltas::CandidateOf(const sampler::Logprob& logprob) const {
  return {std::string(tokenizer_->TokenBytes(logprob.id)), logprob.id, logprob.logprob};
}

api::TokenLogprob AnswerDeltas::RecordOf(const sampler::Logprobs& computed) const {
  api::TokenLogprob recorded{CandidateOf(computed.chosen), {}, computed.rank};
  recorded.top.reserve(computed.top.size());
  for (const auto& logprob : computed.top) recorded.top.push_back(CandidateOf(logprob));
  return recorded;
}

}  // namespace quire::runner::engine
