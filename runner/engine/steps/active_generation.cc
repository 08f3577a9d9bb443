#include "runner/engine/steps/active_generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "runner/sampler/logprobs.h"

namespace quire::runner::engine {
namespace {

constexpr int32_t kForcedMax = 32;  // tokens in one go
// For masks within a step, behind its first token: some 0.5 ms. What takes more is for the next step.
constexpr uint64_t kMaskStepsAhead = 50'000;

constexpr const char* kTooMuchParseMemory =
    "the output format is too deeply nested or too ambiguous: the answer so far takes too much memory";
constexpr const char* kTooManyWays =
    "the output format is too ambiguous: the answer so far can be read in too many ways";

int64_t Nanoseconds(Clock::duration duration) {
  return std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

// What makes a sampler read the vocabulary again, or sort it.
std::optional<size_t> SamplingKindOf(const api::GenerationParams& params, bool logprobs) {
  constexpr int32_t kFewCandidates = 1000;
  if (params.mirostat != 0 || params.dry_multiplier != 0) return std::nullopt;
  const auto bit = [](bool is_set, size_t position) { return is_set ? size_t{1} << position : 0; };
  return bit(logprobs, 0) |
         bit(params.temperature > 0 && (params.top_k <= 0 || params.top_k > kFewCandidates), 1) |
         bit(params.top_p < 1, 2) | bit(params.typical_p < 1, 3) | bit(params.xtc_probability > 0, 4);
}

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
      params_(std::move(setup.request.params)),
      shift_(setup.request.shift),
      logprobs_(setup.request.logprobs),
      top_logprobs_(setup.request.top_logprobs),
      return_context_(setup.request.return_context),
      delta_per_token_(setup.request.delta_per_token),
      predict_limit_(setup.request.predict_ms_max),
      report_progress_(setup.request.report_progress),
      num_ctx_(std::min(setup.prompt.num_ctx, context_max)),
      spent_(setup.resume.spent),
      prompt_dropped_(setup.prompt.dropped),
      system_tokens_(setup.prompt.system_tokens),
      prompt_tokens_(static_cast<int32_t>(setup.prompt.tokens.size())),
      begun_(setup.resume.deltas > PromptReport(setup.request, prompt_tokens_).deltas()),
      tokenizer_(std::move(tokenizer)),
      end_of_generation_(end_of_generation),
      outbox_(std::move(emit)),
      report_(setup.request, prompt_tokens_),
      tokens_(std::move(setup.prompt.tokens)),
      logit_processor_(params_, end_of_generation, std::move(setup.prompt.banned_first)),
      sampler_(params_, [tokens = tokenizer_](api::TokenId id) { return tokens->TokenBytes(id); }),
      sampling_kind_(SamplingKindOf(params_, logprobs_)),
      text_(tokenizer_, StartOf(setup.request.prompt),
            {params_.stop, setup.request.indent_min, std::move(setup.prompt.output)}),
      hide_thinking_(setup.request.think == api::Think::kOff),
      thinking_budget_(std::move(setup.prompt.thinking_budget)),
      single_call_(setup.request.single_tool_call),
      arrived_(setup.arrived),
      build_time_(setup.prompt.build_time),
      sampling_(std::move(setup.prompt.sampling)) {
  if (setup.prompt.constraint) matcher_.emplace(std::move(setup.prompt.constraint));
  tokens_.reserve(tokens_.size() + static_cast<size_t>(std::clamp(OutputLimit(), 1, std::max(num_ctx_, 1))));
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
    if (FillsContext()) return EndReplay(resume.state_at_shift);
    const api::TokenId token = resume.tokens[replay_->next++];
    sampler_.SkipOne();
    if (logprobs_) unsent_logprobs_.emplace_back();  // goes out in a delta that is skipped
    if (matcher_) matcher_->Replay(token);
    AppendToken(token);
    if (replay_->next == resume.tokens.size()) return EndReplay(resume.state);
    if (Clock::now() >= until) return false;
  }
  return true;
}

bool ActiveGeneration::EndReplay(std::optional<api::ResumeState> state) {
  SetState(state);
  replay_.reset();
  return true;
}

std::optional<api::ResumeState> ActiveGeneration::StateHere() const {
  const std::optional<float> sampler = sampler_.state();
  if (!matcher_ && !sampler) return std::nullopt;
  return api::ResumeState{.sampler = sampler, .mask_steps = matcher_ ? matcher_->mask_steps() : 0};
}

void ActiveGeneration::SetState(const std::optional<api::ResumeState>& state) {
  if (!state) return;
  if (state->sampler) sampler_.set_state(*state->sampler);
  if (matcher_) matcher_->RestoreMaskSteps(state->mask_steps);
}

void ActiveGeneration::Start(int32_t computed, api::PromptReady how) {
  computed_ = computed;
  prefilling_ = true;
  if (started_) return;
  started_ = Clock::now();
  how.prompt_tokens = prompt_tokens_;
  how.cached_tokens = std::min(computed, prompt_tokens_);  // what was resumed may be in the caches too
  cached_tokens_ = spent_ ? std::min(spent_->cached_tokens, prompt_tokens_) : how.cached_tokens;
  how.build_ns = build_time_.count();
  how.sampling = std::move(sampling_);
  outbox_.Add(std::move(how));
  ReportPromptTokens();
}

void ActiveGeneration::ReportPromptTokens() {
  while (!report_.done() && (report_.told() == 0 || !report_.has_logprobs())) {
    report_.Report({.chosen = CandidateOf({.id = tokens_[static_cast<size_t>(report_.told())]}), .top = {}},
                   outbox_);
  }
}

void ActiveGeneration::ReportPrompt(std::span<const api::Result<sampler::Logprobs>> scores) {
  for (const auto& score : scores) {
    if (!score) return Fail(score.error());
    report_.Report(RecordOf(*score), outbox_);
  }
}

int32_t ActiveGeneration::prefill_left() const {
  return prefilling_ ? static_cast<int32_t>(tokens_.size()) - computed_ : 0;
}

int32_t ActiveGeneration::decode_left() const {
  return prefilling_ ? 0 : static_cast<int32_t>(tokens_.size()) - computed_;
}

std::span<const api::TokenId> ActiveGeneration::Uncomputed(int32_t count) const {
  return std::span(tokens_).subspan(static_cast<size_t>(computed_), static_cast<size_t>(count));
}

bool ActiveGeneration::AllComputedAfter(int32_t count) const {
  return computed_ + count == static_cast<int32_t>(tokens_.size());
}

// What was resumed, and what a shift or preemption makes compute again, is no progress of the prompt.
void ActiveGeneration::Computed(int32_t count) {
  computed_ += count;
  const bool in_prompt = prefilling_ && !first_token_ && computed_ < prompt_tokens_;
  if (report_progress_ && in_prompt && output_tokens_ == 0) outbox_.Add(api::PrefillProgress{computed_});
}

int32_t ActiveGeneration::OutputLimit() const {
  const int64_t contexts = api::ipc::kUnlimitedContexts * num_ctx_;
  const int64_t tokens = params_.num_predict >= 0 ? params_.num_predict : contexts;
  return static_cast<int32_t>(std::min<int64_t>(tokens, api::ipc::kAnswerTokensMax));
}

constraint::Matcher* ActiveGeneration::PlanMask() {
  mask_steps_ahead_ = kMaskStepsAhead;
  return matcher_ && !ended_ ? &*matcher_ : nullptr;
}

void ActiveGeneration::Sample(std::span<const float> logits, sampler::Workspace& workspace) {
  prefilling_ = false;
  if (ended_) return;  // one of the prompt's log-probabilities is no number
  const auto now = Clock::now();
  if (!first_token_) first_token_ = now;
  if (output_tokens_ >= OutputLimit()) return Finish(api::FinishReason::kLength);
  if (matcher_ && matcher_->IsComplete()) return Finish(api::FinishReason::kStop);
  const auto sampled = Choose(logits, workspace);
  if (!sampled) return Fail(sampled.error());
  if (logprobs_ && (!Ends(*sampled) || report_.ends_echo())) {
    if (auto recorded = RecordLogprobs(logits, *sampled); !recorded) return Fail(recorded.error());
  }
  AcceptToken(*sampled);
  AppendForcedTokens();
}

int32_t ActiveGeneration::DraftLimit(int32_t limit) const {
  if (prefilling_ || ended_ || draft_.drafted >= api::ipc::kAnswerTokensMax) return 0;
  if (params_.draft_num_predict >= 0) limit = std::min(limit, params_.draft_num_predict);
  const int32_t room = num_ctx_ - static_cast<int32_t>(tokens_.size()) - 1;
  return std::clamp(std::min(room, OutputLimit() - output_tokens_ - 1), 0, std::max(limit, 0));
}

int32_t ActiveGeneration::SampleAndVerify(std::span<const api::TokenId> rows, std::span<const float> logits,
                                          sampler::Workspace& workspace) {
  const auto begin = static_cast<size_t>(computed_);
  const auto matching = [&] {
    return static_cast<size_t>(std::ranges::mismatch(rows, std::span(tokens_).subspan(begin)).in1 -
                               rows.begin());
  };
  const size_t newest = tokens_.size() - 1 - begin;
  const size_t drafted = rows.size() - 1 - newest, vocab = logits.size() / (drafted + 1);
  size_t row = newest;
  while (true) {
    Sample(logits.subspan((row - newest) * vocab, vocab), workspace);
    if (ended_ || needs_shift() || backpressured()) break;
    if (matcher_ && !matcher_->PrepareMask(mask_steps_ahead_)) break;
    row = tokens_.size() - 1 - begin;
    if (matching() <= row) break;
  }
  // The newest token's logits are still to be computed, also where its draft was accepted.
  const size_t kept = std::max(newest + 1, std::min(matching(), tokens_.size() - 1 - begin));
  const size_t accepted = kept - (newest + 1);
  ++draft_.rounds;
  draft_.drafted += static_cast<int32_t>(drafted);
  auto& by_position = draft_.accepted_by_position;
  if (by_position.size() < drafted) by_position.resize(drafted);
  for (size_t i = 0; i < accepted; ++i) ++by_position[i];
  return static_cast<int32_t>(kept);
}

api::Result<api::TokenId> ActiveGeneration::Choose(std::span<const float> logits,
                                                   sampler::Workspace& workspace) {
  state_here_ = StateHere();
  if (shift_ && FillsContext() && !std::exchange(shift_recorded_, true)) unsent_shift_ = state_here_;
  // Every position's mask is made, whatever is chosen there: what masks cost depends on the tokens alone.
  if (matcher_) matcher_->Mask();
  const auto accepts = [this](api::TokenId token) {
    return !matcher_ || (!matcher_->IsCutOff() && matcher_->Accept(token));
  };
  if (const auto closing = ClosingToken(); closing && accepts(*closing)) {
    sampler_.SkipOne();
    return *closing;
  }
  const auto processed = logit_processor_.Apply(logits, output_tokens_, workspace);
  if (!matcher_) return sampler_.Sample(processed, tokens_, workspace);
  if (matcher_->IsTooLarge()) return api::Fail(api::ErrorCode::kUnsupported, kTooMuchParseMemory);
  if (matcher_->IsCutOff()) return api::Fail(api::ErrorCode::kUnsupported, kTooManyWays);
  if (matcher_->IsTooExpensive()) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     "the output format is too ambiguous: one token takes too much work");
  }
  if (matcher_->IsDeadEnd()) {
    return api::Fail(api::ErrorCode::kUnsupported, "the vocabulary cannot produce the required output");
  }
  const auto allowed = matcher_->Mask().words();
  auto masked = workspace.Mask(processed, allowed);
  // Where the logit rules leave nothing of what the format allows, the format wins.
  const auto possible = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (processed.data() != logits.data() && std::ranges::none_of(masked, possible)) {
    masked = workspace.Mask(logits, allowed);
  }
  const auto sampled = sampler_.Sample(masked, tokens_, workspace);
  if (sampled && !matcher_->Accept(*sampled)) {
    if (matcher_->IsCutOff()) return api::Fail(api::ErrorCode::kUnsupported, kTooManyWays);
    return api::Fail(api::ErrorCode::kInternal, "sampled a token that the output format does not allow");
  }
  return sampled;
}

void ActiveGeneration::AcceptToken(api::TokenId token) {
  if (!Ends(token)) return AppendToken(token);
  tokens_.push_back(token);
  Finish(api::FinishReason::kStop);
}

// Stop tokens count where stop strings do.
bool ActiveGeneration::Ends(api::TokenId token) const {
  if (end_of_generation_.contains(token)) return true;
  return text_.in_text() && std::ranges::find(params_.stop_token_ids, token) != params_.stop_token_ids.end();
}

std::optional<api::TokenId> ActiveGeneration::ClosingToken() const {
  if (reasoning_tokens_ < thinking_budget_.tokens_max || closing_tokens_ >= thinking_budget_.closing.size() ||
      !thinking()) {
    return std::nullopt;
  }
  return thinking_budget_.closing[closing_tokens_];
}

// Their logits are not computed: the next step computes the tokens themselves in one go.
void ActiveGeneration::AppendForcedTokens() {
  if (!matcher_) return;
  for (int32_t taken = 0; !ended_ && !backpressured(); ++taken) {
    // Also where no token is forced: with its mask the answer takes part in the next step.
    if (!matcher_->PrepareMask(mask_steps_ahead_) || logprobs_ || taken == kForcedMax) return;
    if (FillsContext()) return;        // a shift finds one token at most that is not computed
    if (matcher_->IsCutOff()) return;  // only the first of what may come is known: Choose() fails
    const auto only = matcher_->SingleAllowedToken();
    if (!only || output_tokens_ >= OutputLimit()) return;
    state_here_ = StateHere();
    if (!matcher_->Accept(*only)) return;  // likewise
    sampler_.SkipOne();
    AcceptToken(*only);
  }
}

api::Result<void> ActiveGeneration::RecordLogprobs(std::span<const float> logits, api::TokenId token) {
  const auto computed = sampler::ComputeLogprobs(logits, token, top_logprobs_);
  if (!computed) return std::unexpected(computed.error());
  unsent_logprobs_.push_back(RecordOf(*computed));
  return {};
}

api::TokenCandidate ActiveGeneration::CandidateOf(const sampler::Logprob& logprob) const {
  return {std::string(tokenizer_->TokenBytes(logprob.id)), logprob.id, logprob.logprob};
}

api::TokenLogprob ActiveGeneration::RecordOf(const sampler::Logprobs& computed) const {
  api::TokenLogprob recorded{CandidateOf(computed.chosen), {}, computed.rank};
  recorded.top.reserve(computed.top.size());
  for (const auto& logprob : computed.top) recorded.top.push_back(CandidateOf(logprob));
  return recorded;
}

void ActiveGeneration::AppendToken(api::TokenId token) {
  tokens_.push_back(token);
  ++output_tokens_;
  closing_tokens_ = thinking() && reasoning_tokens_ >= thinking_budget_.tokens_max ? closing_tokens_ + 1 : 0;
  if (thinking()) ++reasoning_tokens_;
  unsent_ids_.push_back(token);
  state_before_ = state_here_;
  text_.Append(token);
  if (text_.stop()) return Finish(api::FinishReason::kStop);
  const bool context_full = !shift_ && static_cast<int32_t>(tokens_.size()) >= num_ctx_;
  if (text_.is_cut() || context_full || output_tokens_ >= OutputLimit()) {
    return Finish(api::FinishReason::kLength);
  }
  EmitCertain();
  if (called_ && single_call_) return Finish(api::FinishReason::kStop);
  if (TimeIsOver()) FinishForTime();
}

void ActiveGeneration::EmitCertain() {
  using Kind = output::OutputChunk::Kind;
  api::TextDelta delta;
  text_.PopCertain(chunks_);
  for (output::OutputChunk& chunk : chunks_) {
    if (called_ && single_call_) break;
    // Within a delta thinking comes first and calls last.
    const bool out_of_order = !delta.tool_calls.empty()
                                  ? chunk.kind != Kind::kCall
                                  : !delta.text.empty() && chunk.kind == Kind::kThinking;
    if (out_of_order) EmitDelta(std::exchange(delta, {}));
    if (chunk.kind == Kind::kText) delta.text += chunk.text;
    if (chunk.kind == Kind::kThinking && !hide_thinking_) delta.thinking += chunk.text;
    if (chunk.kind != Kind::kCall) continue;
    delta.tool_calls.push_back(std::move(chunk.call));
    called_ = true;
  }
  EmitDelta(std::move(delta));
}

void ActiveGeneration::EmitDelta(api::TextDelta delta) {
  const bool silent = delta.text.empty() && delta.thinking.empty() && delta.tool_calls.empty();
  const bool due = delta_per_token_ && !unsent_ids_.empty();
  if (silent && unsent_logprobs_.empty() && !due) return;
  delta.logprobs = std::exchange(unsent_logprobs_, {});
  delta.tokens = static_cast<int32_t>(unsent_ids_.size());
  if (!unsent_ids_.empty()) {
    delta.state = state_before_;
    delta.state_at_shift = std::exchange(unsent_shift_, std::nullopt);
  }
  delta.token_ids = std::exchange(unsent_ids_, {});
  outbox_.AddDelta(std::move(delta));
}

void ActiveGeneration::Finish(api::FinishReason reason) {
  ended_ = true;
  matcher_.reset();  // its memory does not wait for the reader
  in_thinking_ = text_.thinking();
  if (!text_.stop() && !text_.is_cut()) text_.End();
  EmitCertain();
  AddFinished(text_.stop() ? api::FinishReason::kStop : reason);
}

// Another runner, in which the same answer might go on, does not know when this one ended it: what is held
// back stays back, so that each delta depends on tokens only.
void ActiveGeneration::FinishForTime() {
  ended_ = true;
  matcher_.reset();
  in_thinking_ = text_.thinking();
  AddFinished(api::FinishReason::kLength);
}

void ActiveGeneration::AddFinished(api::FinishReason reason) {
  api::Finished finished{.reason = reason,
                         .stop_string = text_.stop() ? params_.stop[*text_.stop()] : "",
                         .usage = UsageNow(),
                         .prompt_dropped = prompt_dropped_,
                         .in_thinking = in_thinking_};
  if (return_context_) finished.context = tokens_;
  outbox_.Add(std::move(finished));
}

// Never before the first token is sampled: a resumed answer repeats its own first.
bool ActiveGeneration::TimeIsOver() const {
  if (predict_limit_.count() == 0 || !text_.line_broken() || !first_token_) return false;
  return std::chrono::nanoseconds(OutputNanoseconds()) > predict_limit_;
}

int64_t ActiveGeneration::OutputNanoseconds() const {
  return (spent_ ? spent_->output_ns : 0) + Nanoseconds(Clock::now() - *first_token_);
}

// That it took to compute the prompt again, behind which the client has some of the answer, counts for
// nothing.
int64_t ActiveGeneration::PromptNanoseconds() const {
  return (spent_ ? spent_->prompt_ns : 0) + (begun_ ? 0 : Nanoseconds(*first_token_ - *started_));
}

api::Usage ActiveGeneration::UsageNow() const {
  return {.prompt_tokens = prompt_tokens_,
          .cached_tokens = cached_tokens_,
          .output_tokens = output_tokens_,
          .queue_ns = spent_ ? spent_->queue_ns : Nanoseconds(*started_ - arrived_),
          .prompt_ns = PromptNanoseconds(),
          .output_ns = OutputNanoseconds(),
          .draft = draft_,
          .reasoning_tokens = reasoning_tokens_};
}

void ActiveGeneration::FinishEmbedding(std::vector<float> vector) {
  if (!std::ranges::all_of(vector, [](float value) { return std::isfinite(value); })) {
    return Fail({api::ErrorCode::kInternal, "the model's hidden states for this text are not finite"});
  }
  ended_ = true;
  first_token_ = Clock::now();
  api::Finished finished{.reason = api::FinishReason::kStop,
                         .stop_string = {},
                         .usage = UsageNow(),
                         .prompt_dropped = prompt_dropped_};
  finished.embedding = std::move(vector);
  outbox_.Add(std::move(finished));
}

void ActiveGeneration::Fail(api::Error error) {
  ended_ = true;
  matcher_.reset();
  outbox_.Add(api::Failed{std::move(error)});
}

void ActiveGeneration::FailForParseMemory() { Fail({api::ErrorCode::kUnsupported, kTooMuchParseMemory}); }

void ActiveGeneration::EndOfContext() {
  if (first_token_) return Finish(api::FinishReason::kLength);
  Fail({api::ErrorCode::kContextLengthExceeded, "the prompt does not fit in this runner's cache",
        "options.num_ctx"});
}

ActiveGeneration::Range ActiveGeneration::ShiftRange() const {
  const int32_t size = static_cast<int32_t>(tokens_.size());
  // The newest token is not in the caches yet and stays.
  const int32_t asked = params_.num_keep < 0 ? prompt_tokens_ : std::max(params_.num_keep, system_tokens_);
  const int32_t keep = std::clamp(asked, 0, size - 2);
  return {keep, keep + std::max((size - 1 - keep) / 2, 1)};
}

void ActiveGeneration::Shift(Range range, bool kept_computed) {
  tokens_.erase(tokens_.begin() + range.begin, tokens_.begin() + range.end);
  if (kept_computed) computed_ -= range.end - range.begin;
}

}  // namespace quire::runner::engine
