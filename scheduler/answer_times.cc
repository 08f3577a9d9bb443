#include "scheduler/answer_times.h"

#include <cstdint>
#include <utility>
#include <variant>

namespace quire::scheduler {

void AnswerTimes::Sent(Time now) {
  since_ = now;
  resumed_ = begun_;
}

void AnswerTimes::Record(const api::Event& event, Time now) {
  const auto* ready = std::get_if<api::PromptReady>(&event);
  if (ready == nullptr && !spent_) return;  // refused before it began
  const int64_t passed =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - std::exchange(since_, now)).count();
  if (ready != nullptr) {
    if (!spent_) spent_ = api::ipc::Spent{.cached_tokens = ready->cached_tokens, .queue_ns = passed};
  } else if (!begun_) {
    spent_->prompt_ns += passed;
  } else if (!std::exchange(resumed_, false)) {
    spent_->output_ns += passed;
  }
  const auto* delta = std::get_if<api::TextDelta>(&event);
  begun_ = begun_ || (delta != nullptr && delta->prompt.empty());
}

}  // namespace quire::scheduler
