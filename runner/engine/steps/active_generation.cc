#include "runner/engine/steps/active_generation.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

namespace quire::runner::engine {
namespace {

constexpr int32_t kForcedMax = 32;  // tokens in one go

// A chat answer is a text of its own; a continuation keeps the space before its first word.
tokenizer::Detokenizer::StartAt StartOf(const api::Prompt& prompt) {
  using StartAt = tokenizer::Detokenizer::StartAt;
  const auto answer = [](const std::vector<api::Message>& messages) {
    return messages.empty() || messages.back().role == "assistant" ? StartAt::kMiddle : StartAt::kText;
  };
  if (const auto* chat = std::get_if<api::ChatPrompt>(&prompt)) return answer(chat->messages);
  if (const auto* continued = std::get_if<api::ContinuedPrompt>(&prompt)) return answer(continued->messages);
  return StartAt::kMiddle;
}

}  // namespace

ActiveGeneration::ActiveGeneration(Setup setup, int32_t context_max,
                                   std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                   const std::unordered_set<api::TokenId>& end_of_generation, Emit emit)
    : id_(setup.id),
      rules_{.params = std::move(setup.request.params),
             .shift = setup.request.shift,
             .logprobs = setup.request.logprobs,
             .top_logprobs = setup.request.top_logprobs,
             .return_context = setup.request.return_context,
             .predict_limit = std::chrono::milliseconds(setup.request.predict_ms_max),
             .report_progress = setup.request.report_progress,
             .prompt_dropped = setup.prompt.dropped,
             .system_tokens = setup.prompt.system_tokens,
             .build_time = setup.prompt.build_time},
      end_of_generation_(end_of_generation),
      sequence_(std::move(setup.prompt.tokens), std::min(setup.prompt.num_ctx, context_max)),
      report_(setup.request, sequence_.prompt_tokens()),
      clock_(setup.arrived, setup.resume.spent, setup.resume.deltas > report_.deltas()),
      outbox_(std::move(emit)),
      choice_(rules_.params, rules_.logprobs, tokenizer, end_of_generation,
              std::move(setup.prompt.banned_first), std::move(setup.prompt.constraint)),
      deltas_(std::move(tokenizer), StartOf(setup.request.prompt),
              {rules_.params.stop, setup.request.indent_min, std::move(setup.prompt.output)},
              {.hide_thinking = setup.request.think == api::Think::kOff,
               .single_call = setup.request.single_tool_call,
               .delta_per_token = setup.request.delta_per_token}),
      thinking_(std::move(setup.prompt.thinking_budget)),
      sampling_(std::move(setup.prompt.sampling)) {
  sequence_.Reserve(std::clamp(OutputLimit(), 1, std::max(sequence_.num_ctx(), 1)));
  outbox_.Resume(setup.resume.deltas, setup.resume.credit);
  // The client has all of what comes before the answer: these deltas are skipped.
  while (!setup.resume.tokens.empty() && !report_.done()) report_.Report({}, outbox_);
  replay_.emplace(std::move(setup.resume));
  if (replay_->resume.tokens.empty()) EndReplay(replay_->resume.state);
}

bool ActiveGeneration::Replay(Clock::time_point until) {
  while (replay_) {
    const api::ipc::Resume& resume = replay_->resume;
    if (ended_) return EndReplay({});  // for its parse states
    if (sequence_.is_full_with_next()) return EndReplay(resume.state_at_shift);
    const api::TokenId token = resume.tokens[replay_->next++];
    if (rules_.logprobs) deltas_.AddLogprobs({});  // goes out in a delta that is skipped
    choice_.Replay(token);
    AppendToken(token);
    if (replay_->next == resume.tokens.size()) return EndReplay(resume.state);
    if (Clock::now() >= until) return false;
  }
  return true;
}

bool ActiveGeneration::EndReplay(const std::optional<api::ResumeState>& state) {
  choice_.Restore(state);
  replay_.reset();
  return true;
}

void ActiveGeneration::Start(int32_t computed, api::PromptReady how) {
  sequence_.Prefill(computed);
  if (!clock_.Begin()) return;
  how.prompt_tokens = sequence_.prompt_tokens();
  how.cached_tokens = std::min(computed, how.prompt_tokens);  // what was resumed may be in the caches too
  const auto& spent = clock_.spent_before();
  cached_tokens_ = spent ? std::min(spent->cached_tokens, how.prompt_tokens) : how.cached_tokens;
  how.build_ns = rules_.build_time.count();
  how.sampling = std::move(sampling_);
  outbox_.Add(std::move(how));
  ReportPromptTokens();
}

void ActiveGeneration::ReportPromptTokens() {
  while (!report_.done() && (report_.told() == 0 || !report_.has_logprobs())) {
    const api::TokenId token = sequence_.tokens()[static_cast<size_t>(report_.told())];
    report_.Report({.chosen = deltas_.CandidateOf({.id = token}), .top = {}}, outbox_);
  }
}

void ActiveGeneration::ReportPrompt(std::span<const api::Result<sampler::Logprobs>> scores) {
  for (const auto& score : scores) {
    if (!score) return Fail(score.error());
    report_.Report(deltas_.RecordOf(*score), outbox_);
  }
}

// What was resumed, and what a shift or preemption makes compute again, is no progress of the prompt.
void ActiveGeneration::Computed(int32_t count) {
  sequence_.Computed(count);
  const bool in_prompt =
      sequence_.prefilling() && !clock_.has_token() && sequence_.computed() < sequence_.prompt_tokens();
  if (rules_.report_progress && in_prompt && output_tokens_ == 0) {
    outbox_.Add(api::PrefillProgress{sequence_.computed()});
  }
}

int32_t ActiveGeneration::OutputLimit() const {
  const int64_t contexts = api::ipc::kUnlimitedContexts * sequence_.num_ctx();
  const int64_t tokens = rules_.params.num_predict >= 0 ? rules_.params.num_predict : contexts;
  return static_cast<int32_t>(std::min<int64_t>(tokens, api::ipc::kAnswerTokensMax));
}

void ActiveGeneration::Sample(std::span<const float> logits, sampler::Workspace& workspace) {
  sequence_.EndPrefill();
  if (ended_) return;  // one of the prompt's log-probabilities is no number
  clock_.SetFirstToken();
  if (output_tokens_ >= OutputLimit()) return Finish(api::FinishReason::kLength);
  if (choice_.is_complete()) return Finish(api::FinishReason::kStop);
  choice_.RecordState();
  if (rules_.shift && sequence_.is_full_with_next() && !std::exchange(shift_recorded_, true)) {
    deltas_.SetShiftState(choice_.state());
  }
  const auto closing = thinking_.ClosingToken(deltas_.text().thinking());
  const auto sampled = choice_.Choose(logits, sequence_.tokens(), output_tokens_, closing, workspace);
  if (!sampled) return Fail(sampled.error());
  if (rules_.logprobs && (!Ends(*sampled) || report_.ends_echo())) {
    const auto computed = sampler::ComputeLogprobs(logits, *sampled, rules_.top_logprobs);
    if (!computed) return Fail(computed.error());
    deltas_.AddLogprobs(deltas_.RecordOf(*computed));
  }
  AcceptToken(*sampled);
  AppendForcedTokens();
}

int32_t ActiveGeneration::DraftLimit(int32_t limit) const {
  if (sequence_.prefilling() || ended_ || draft_.drafted >= api::ipc::kAnswerTokensMax) return 0;
  if (rules_.params.draft_num_predict >= 0) limit = std::min(limit, rules_.params.draft_num_predict);
  const int32_t room = sequence_.num_ctx() - sequence_.size() - 1;
  return std::clamp(std::min(room, OutputLimit() - output_tokens_ - 1), 0, std::max(limit, 0));
}

int32_t ActiveGeneration::SampleAndVerify(std::span<const api::TokenId> rows, std::span<const float> logits,
                                          sampler::Workspace& workspace) {
  const auto begin = static_cast<size_t>(sequence_.computed());
  const auto behind = [&] { return sequence_.tokens().size() - 1 - begin; };
  const auto matching = [&] {
    return static_cast<size_t>(std::ranges::mismatch(rows, sequence_.tokens().subspan(begin)).in1 -
                               rows.begin());
  };
  const size_t newest = behind();
  const size_t drafted = rows.size() - 1 - newest, vocab = logits.size() / (drafted + 1);
  size_t row = newest;
  while (true) {
    Sample(logits.subspan((row - newest) * vocab, vocab), workspace);
    if (ended_ || needs_shift() || backpressured()) break;
    if (!choice_.PrepareAhead()) break;
    row = behind();
    if (matching() <= row) break;
  }
  // The newest token's logits are still to be computed, also where its draft was accepted.
  const size_t kept = std::max(newest + 1, std::min(matching(), behind()));
  const size_t accepted = kept - (newest + 1);
  ++draft_.rounds;
  draft_.drafted += static_cast<int32_t>(drafted);
  auto& by_position = draft_.accepted_by_position;
  if (by_position.size() < drafted) by_position.resize(drafted);
  for (size_t i = 0; i < accepted; ++i) ++by_position[i];
  return static_cast<int32_t>(kept);
}

void ActiveGeneration::AcceptToken(api::TokenId token) {
  if (!Ends(token)) return AppendToken(token);
  sequence_.Append(token);
  Finish(api::FinishReason::kStop);
}

// Stop tokens count where stop strings do.
bool ActiveGeneration::Ends(api::TokenId token) const {
  if (end_of_generation_.contains(token)) return true;
  const auto& stops = rules_.params.stop_token_ids;
  return deltas_.text().in_text() && std::ranges::find(stops, token) != stops.end();
}

// Their logits are not computed: the next step computes the tokens themselves in one go.
void ActiveGeneration::AppendForcedTokens() {
  if (!choice_.has_format()) return;
  for (int32_t taken = 0; !ended_ && !backpressured(); ++taken) {
    // Also where no token is forced: with its mask the answer takes part in the next step.
    if (!choice_.PrepareAhead() || rules_.logprobs || taken == kForcedMax) return;
    if (sequence_.is_full_with_next()) return;  // a shift finds one token at most that is not computed
    const auto only = choice_.SingleToken();
    if (!only || output_tokens_ >= OutputLimit() || !choice_.AcceptSingleToken(*only)) return;
    AcceptToken(*only);
  }
}

void ActiveGeneration::AppendToken(api::TokenId token) {
  sequence_.Append(token);
  ++output_tokens_;
  thinking_.Count(deltas_.text().thinking());
  deltas_.Append(token, choice_.state());
  if (deltas_.text().stop()) return Finish(api::FinishReason::kStop);
  const bool context_full = !rules_.shift && sequence_.is_full();
  if (deltas_.text().is_cut() || context_full || output_tokens_ >= OutputLimit()) {
    return Finish(api::FinishReason::kLength);
  }
  deltas_.EmitCertain(outbox_);
  if (deltas_.is_done()) return Finish(api::FinishReason::kStop);
  if (TimeIsOver()) FinishForTime();
}

void ActiveGeneration::Finish(api::FinishReason reason) {
  ended_ = true;
  choice_.EndFormat();
  const AnswerText& text = deltas_.text();
  const bool in_thinking = text.thinking();
  if (!text.stop() && !text.is_cut()) deltas_.End();
  deltas_.EmitCertain(outbox_);
  AddFinished(text.stop() ? api::FinishReason::kStop : reason, in_thinking);
}

// Another runner, in which the same answer might go on, does not know when this one ended it: what is held
// back stays back, so that each delta depends on tokens only.
void ActiveGeneration::FinishForTime() {
  ended_ = true;
  choice_.EndFormat();
  AddFinished(api::FinishReason::kLength, deltas_.text().thinking());
}

void ActiveGeneration::AddFinished(api::FinishReason reason, bool in_thinking) {
  const auto stop = deltas_.text().stop();
  api::Finished finished{.reason = reason,
                         .stop_string = stop ? rules_.params.stop[*stop] : "",
                         .usage = UsageNow(),
                         .prompt_dropped = rules_.prompt_dropped,
                         .in_thinking = in_thinking};
  if (rules_.return_context) finished.context.assign(sequence_.tokens().begin(), sequence_.tokens().end());
  outbox_.Add(std::move(finished));
}

// Never before the first token is sampled: a resumed answer repeats its own first.
bool ActiveGeneration::TimeIsOver() const {
  if (rules_.predict_limit.count() == 0 || !deltas_.text().line_broken() || !clock_.has_token()) return false;
  return std::chrono::nanoseconds(clock_.OutputNanoseconds()) > rules_.predict_limit;
}

api::Usage ActiveGeneration::UsageNow() const {
  api::Usage usage{.prompt_tokens = sequence_.prompt_tokens(),
                   .cached_tokens = cached_tokens_,
                   .output_tokens = output_tokens_,
                   .draft = draft_,
                   .reasoning_tokens = thinking_.tokens()};
  clock_.AddTo(usage);
  return usage;
}

void ActiveGeneration::FinishEmbedding(std::vector<float> vector) {
  if (!std::ranges::all_of(vector, [](float value) { return std::isfinite(value); })) {
    return Fail({api::ErrorCode::kInternal, "the model's hidden states for this text are not finite"});
  }
  ended_ = true;
  clock_.SetFirstToken();
  api::Finished finished{.reason = api::FinishReason::kStop,
                         .stop_string = {},
                         .usage = UsageNow(),
                         .prompt_dropped = rules_.prompt_dropped};
  finished.embedding = std::move(vector);
  outbox_.Add(std::move(finished));
}

void ActiveGeneration::Fail(api::Error error) {
  ended_ = true;
  choice_.EndFormat();
  outbox_.Add(api::Failed{std::move(error)});
}

void ActiveGeneration::EndOfContext() {
  if (clock_.has_token()) return Finish(api::FinishReason::kLength);
  Fail({api::ErrorCode::kContextLengthExceeded, "the prompt does not fit in this runner's cache",
        "options.num_ctx"});
}

TokenSequence::Range ActiveGeneration::ShiftRange() const {
  const int32_t keep = rules_.params.num_keep;
  return sequence_.ShiftRange(keep < 0 ? sequence_.prompt_tokens() : std::max(keep, rules_.system_tokens));
}

}  // namespace quire::runner::engine
