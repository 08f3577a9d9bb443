#include "runner/engine/generation.h"

#include <algorithm>
#include <utility>

#include "runner/sampler/logprobs.h"

namespace quire::runner::engine {
namespace {

// An answer without num_predict ends at this many contexts' worth of tokens, so that a model that never stops
// does.
constexpr int64_t kUnlimitedContexts = 10;

int64_t Nanoseconds(Clock::duration duration) {
  return std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

}  // namespace

Generation::Generation(Setup setup, cache::Sequence sequence,
                       std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       const std::unordered_set<api::TokenId>& end_of_generation, Emit emit)
    : id_(setup.id),
      params_(std::move(setup.request.params)),
      shift_(setup.request.shift),
      logprobs_(setup.request.logprobs),
      top_logprobs_(setup.request.top_logprobs),
      want_context_(setup.request.want_context),
      num_ctx_(setup.prompt.num_ctx),
      prompt_dropped_(setup.prompt.dropped),
      prompt_tokens_(static_cast<int32_t>(setup.prompt.tokens.size())),
      tokenizer_(std::move(tokenizer)),
      end_of_generation_(end_of_generation),
      emit_(std::move(emit)),
      sequence_(std::move(sequence)),
      tokens_(std::move(setup.prompt.tokens)),
      sampler_(params_),
      detokenizer_(tokenizer_),
      stop_matcher_(params_.stop),
      arrived_(setup.arrived),
      started_(Clock::now()) {
  emit_(api::PromptReady{prompt_tokens_, 0});
}

SequenceState Generation::state() const {
  const int32_t left = static_cast<int32_t>(tokens_.size()) - computed_;
  return {.prefill_left = prefilling_ ? left : 0, .reader_full = credit_ <= 0, .steps_waited = steps_waited_};
}

std::span<const api::TokenId> Generation::Uncomputed(int32_t count) const {
  return std::span(tokens_).subspan(static_cast<size_t>(computed_), static_cast<size_t>(count));
}

bool Generation::AllComputedAfter(int32_t count) const {
  return computed_ + count == static_cast<int32_t>(tokens_.size());
}

void Generation::Computed(int32_t count) {
  computed_ += count;
  steps_waited_ = 0;
}

int32_t Generation::OutputLimit() const {
  if (params_.num_predict >= 0) return params_.num_predict;
  return static_cast<int32_t>(std::min<int64_t>(kUnlimitedContexts * num_ctx_, INT32_MAX));
}

void Generation::Sample(std::span<const float> logits, sampler::Workspace& workspace) {
  prefilling_ = false;
  const auto now = Clock::now();
  if (!first_token_) first_token_ = now;
  if (output_tokens_ >= OutputLimit()) return Finish(api::FinishReason::kLength, std::nullopt);
  const auto sampled = sampler_.Sample(logits, tokens_, workspace);
  if (!sampled) return Fail(sampled.error());
  if (end_of_generation_.contains(*sampled)) {
    tokens_.push_back(*sampled);
    return Finish(api::FinishReason::kStop, std::nullopt);
  }
  if (logprobs_) {
    if (auto noted = NoteLogprobs(logits, *sampled); !noted) return Fail(noted.error());
  }
  TakeToken(*sampled);
}

api::Result<void> Generation::NoteLogprobs(std::span<const float> logits, api::TokenId token) {
  const auto computed = sampler::ComputeLogprobs(logits, token, top_logprobs_);
  if (!computed) return std::unexpected(computed.error());
  const auto candidate = [this](const sampler::Logprob& logprob) {
    return api::TokenCandidate{std::string(tokenizer_->TokenBytes(logprob.id)), logprob.id, logprob.logprob};
  };
  api::TokenLogprob& noted = unsent_logprobs_.emplace_back();
  noted.chosen = candidate(computed->chosen);
  for (const auto& logprob : computed->top) noted.top.push_back(candidate(logprob));
  return {};
}

void Generation::TakeToken(api::TokenId token) {
  tokens_.push_back(token);
  ++output_tokens_;
  ++unsent_tokens_;
  auto emission = stop_matcher_.Feed(detokenizer_.Append(token));
  if (emission.stop) {
    EmitDelta(std::move(emission.text));
    return Finish(api::FinishReason::kStop, emission.stop);
  }
  const bool context_full = !shift_ && static_cast<int32_t>(tokens_.size()) >= num_ctx_;
  if (context_full || output_tokens_ >= OutputLimit()) {
    held_text_ = std::move(emission.text);
    return Finish(api::FinishReason::kLength, std::nullopt);
  }
  EmitDelta(std::move(emission.text));
}

void Generation::EmitDelta(std::string text) {
  if (text.empty() && unsent_logprobs_.empty()) return;
  emit_(
      api::TextDelta{std::move(text), std::exchange(unsent_logprobs_, {}), std::exchange(unsent_tokens_, 0)});
  --credit_;
}

void Generation::Finish(api::FinishReason reason, std::optional<size_t> stop) {
  ended_ = true;
  if (!stop) {
    auto emission = stop_matcher_.Feed(detokenizer_.Flush());
    stop = emission.stop;
    if (stop) reason = api::FinishReason::kStop;
    EmitDelta(held_text_ + emission.text + stop_matcher_.Flush());
  }
  const auto now = Clock::now();
  api::Finished finished{.reason = reason,
                         .stop_string = stop ? params_.stop[*stop] : "",
                         .usage = {},
                         .prompt_dropped = prompt_dropped_};
  finished.usage = {.prompt_tokens = prompt_tokens_,
                    .cached_tokens = 0,
                    .output_tokens = output_tokens_,
                    .queue_ns = Nanoseconds(started_ - arrived_),
                    .prompt_ns = Nanoseconds(*first_token_ - started_),
                    .output_ns = Nanoseconds(now - *first_token_)};
  if (want_context_) finished.context = tokens_;
  emit_(std::move(finished));
}

void Generation::Fail(api::Error error) {
  ended_ = true;
  emit_(api::Failed{std::move(error)});
}

void Generation::Shift(cache::Sequence fresh) {
  const int32_t size = static_cast<int32_t>(tokens_.size());
  const int32_t most = num_ctx_ - 1;
  const int32_t keep = std::clamp(params_.num_keep < 0 ? prompt_tokens_ : params_.num_keep, 0, most);
  const int32_t drop = std::max((size - keep) / 2, 1);
  tokens_.erase(tokens_.begin() + keep, tokens_.begin() + keep + drop);
  sequence_ = std::move(fresh);
  computed_ = 0;
  prefilling_ = true;
}

}  // namespace quire::runner::engine
