#include "scheduler/event_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace quire::scheduler {
namespace {

size_t BytesOf(const api::TokenCandidate& candidate) { return sizeof(candidate) + candidate.bytes.size(); }

size_t BytesOf(const std::vector<api::TokenLogprob>& logprobs) {
  size_t bytes = 0;
  for (const api::TokenLogprob& logprob : logprobs) {
    bytes += BytesOf(logprob.chosen);
    for (const api::TokenCandidate& candidate : logprob.top) bytes += BytesOf(candidate);
  }
  return bytes;
}

// The approximate size of the event, to bound memory.
size_t BytesOf(const api::Event& event) {
  size_t bytes = sizeof(event);
  if (const auto* delta = std::get_if<api::TextDelta>(&event)) {
    bytes += delta->text.size() + delta->thinking.size() + delta->token_ids.size() * sizeof(api::TokenId);
    for (const api::ToolCall& call : delta->tool_calls) {
      bytes += sizeof(call) + call.id.size() + call.name.size() + call.arguments_json.size();
    }
    bytes += BytesOf(delta->logprobs) + BytesOf(delta->prompt);
  } else if (const auto* finished = std::get_if<api::Finished>(&event)) {
    bytes += finished->stop_string.size() + finished->context.size() * sizeof(api::TokenId) +
             finished->embedding.size() * sizeof(float);
  } else if (const auto* ready = std::get_if<api::PromptReady>(&event)) {
    bytes += ready->sampling.size();
    if (ready->divergence) {
      bytes += ready->divergence->shared.size() + ready->divergence->prompt.size() +
               ready->divergence->cached.size();
    }
  } else if (const auto* failed = std::get_if<api::Failed>(&event)) {
    bytes += failed->error.message.size() + failed->error.field.size();
  }
  return bytes;
}

bool IsPlausible(const api::DraftUsage& draft) {
  int64_t accepted = 0;
  for (const int32_t at_position : draft.accepted_by_position) {
    if (at_position < 0) return false;
    accepted += at_position;
  }
  return accepted <= draft.drafted;
}

// A message may quote what a client sent, up to a whole body.
void Shorten(std::string& text) {
  constexpr size_t kBytesMax = size_t{16} << 10;
  if (text.size() <= kBytesMax) return;
  text.resize(kBytesMax);
  text.shrink_to_fit();
  text += "...";
}

bool IsBounded(const api::Divergence& divergence) {
  constexpr size_t kBytesMax = api::Divergence::kTextBytesMax;
  return divergence.shared.size() <= kBytesMax && divergence.prompt.size() <= kBytesMax &&
         divergence.cached.size() <= kBytesMax;
}

}  // namespace

api::Result<void> EventQueue::Push(api::Event event) {
  const bool is_ready = std::holds_alternative<api::PromptReady>(event);
  const bool is_delta = std::holds_alternative<api::TextDelta>(event);
  const bool is_failed = std::holds_alternative<api::Failed>(event);
  const bool is_progress = std::holds_alternative<api::PrefillProgress>(event);
  if (ended_) return ProtocolError("an event after the end of the stream");
  if (is_ready && prompt_ready_) return ProtocolError("duplicate PromptReady");
  if (!prompt_ready_ && !is_ready && !is_failed) return ProtocolError("an event before PromptReady");
  if (const auto* ready = std::get_if<api::PromptReady>(&event); ready != nullptr && ready->divergence) {
    if (!IsBounded(*ready->divergence)) return ProtocolError("a divergence longer than its bounds");
  }
  if (const auto* finished = std::get_if<api::Finished>(&event);
      finished != nullptr && !IsPlausible(finished->usage.draft)) {
    return ProtocolError("more draft tokens accepted than proposed");
  }
  if (auto* failed = std::get_if<api::Failed>(&event)) {
    Shorten(failed->error.message);
    Shorten(failed->error.field);
  }
  if (is_progress) {
    PushProgress(std::get<api::PrefillProgress>(event));
    return {};
  }
  if (is_delta && credit_ <= 0) return ProtocolError("more text than its credit");
  if (const auto* delta = std::get_if<api::TextDelta>(&event)) {
    if (auto checked = CheckTokens(*delta); !checked) return checked;
  }
  const size_t bytes = BytesOf(event);
  if (bytes > kQueuedBytesMax - bytes_) {
    progressed_ = !is_ready;
    Fail({api::ErrorCode::kTooLarge,
          events_.empty()
              ? fmt::format("one tool call of the answer has more than {} bytes", kQueuedBytesMax)
              : fmt::format("the client is more than {} bytes of the answer behind", kQueuedBytesMax)});
    return {};
  }
  if (!is_ready || !prompt_reported_) Append(std::move(event), bytes);
  progressed_ = !is_ready;
  if (!is_ready && !is_delta) End();
  if (is_ready) prompt_ready_ = prompt_reported_ = true;
  return {};
}

void EventQueue::Append(api::Event event, size_t bytes) {
  events_.push_back(std::move(event));
  bytes_ += bytes;
  const auto* delta = std::get_if<api::TextDelta>(&events_.back());
  if (delta == nullptr) return;
  credit_ -= api::ipc::CreditOf(*delta);
  ++deltas_;
  token_count_ += delta->tokens;
  tokens_.insert(tokens_.end(), delta->token_ids.begin(), delta->token_ids.end());
  if (!delta->token_ids.empty()) state_ = delta->state;
  if (delta->state_at_shift) state_at_shift_ = delta->state_at_shift;
}

api::Result<void> EventQueue::CheckTokens(const api::TextDelta& delta) const {
  if (delta.tokens < 0 || std::cmp_greater(delta.token_ids.size(), delta.tokens))
    return ProtocolError("more token ids than tokens");
  if (delta.tokens > tokens_max_ - token_count_)
    return ProtocolError("more tokens than the request asked for");
  return {};
}

// Nothing is resumed any more.
void EventQueue::End() {
  ended_ = true;
  decltype(tokens_)().swap(tokens_);
}

// A runner that took the request over computes the prompt again, also behind text that the client has.
void EventQueue::PushProgress(api::PrefillProgress progress) {
  if (deltas_ > 0) return;
  if (!events_.empty() && std::holds_alternative<api::PrefillProgress>(events_.back())) {
    events_.back() = progress;
    return;
  }
  events_.emplace_back(progress);
  bytes_ += BytesOf(events_.back());
}

void EventQueue::Fail(api::Error error) {
  if (ended_) return;
  End();
  events_.emplace_back(api::Failed{std::move(error)});
  bytes_ += BytesOf(events_.back());
}

std::optional<api::Event> EventQueue::Pop() {
  if (events_.empty()) return std::nullopt;
  bytes_ -= BytesOf(events_.front());
  std::optional<api::Event> event(std::move(events_.front()));
  events_.pop_front();
  if (const auto* delta = std::get_if<api::TextDelta>(&*event)) popped_ += api::ipc::CreditOf(*delta);
  return event;
}

api::ipc::Resume EventQueue::ResumePoint() {
  int32_t left = api::ipc::kInitialCredit;
  for (const api::Event& event : events_) {
    if (const auto* delta = std::get_if<api::TextDelta>(&event)) left -= api::ipc::CreditOf(*delta);
  }
  credit_ = std::max(left, 0);
  popped_ = left - credit_;  // the last delta may have taken more than there was
  prompt_ready_ = false;
  progressed_ = false;
  api::ipc::Resume resume{.tokens = tokens_,
                          .deltas = deltas_,
                          .credit = credit_,
                          .state = state_,
                          .state_at_shift = state_at_shift_};
  if (!resume.tokens.empty()) resume.tokens.pop_back();
  return resume;
}

int32_t EventQueue::PopCredit() {
  if (ended_ || popped_ < kCreditBatch) return 0;
  credit_ += popped_;
  return std::exchange(popped_, 0);
}

}  // namespace quire::scheduler
