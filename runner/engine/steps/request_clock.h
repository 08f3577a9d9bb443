// When a request came, began and got its first token, on top of what runners before have spent on it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "api/base/event.h"
#include "api/ipc/messages.h"

namespace quire::runner::engine {

using Clock = std::chrono::steady_clock;

// Engine thread only.
class RequestClock {
 public:
  // `begun`: runners before have sent some of the answer.
  RequestClock(Clock::time_point arrived, const std::optional<api::ipc::Spent>& spent, bool begun)
      : arrived_(arrived), spent_(spent), begun_(begun) {}

  // False: it had begun before.
  bool Begin() {
    if (started_) return false;
    started_ = Clock::now();
    return true;
  }
  void SetFirstToken() {
    if (!first_token_) first_token_ = Clock::now();
  }
  bool has_token() const { return first_token_.has_value(); }
  const std::optional<api::ipc::Spent>& spent_before() const { return spent_; }
  // Since its first prefill began; nothing before, and once a token is sampled.
  std::optional<Clock::duration> PrefillTime(Clock::time_point now) const {
    return started_ && !first_token_ ? std::optional(now - *started_) : std::nullopt;
  }
  // REQUIRES for these: has_token().
  int64_t OutputNanoseconds() const {
    return (spent_ ? spent_->output_ns : 0) + Nanoseconds(Clock::now() - *first_token_);
  }
  void AddTo(api::Usage& usage) const {
    usage.queue_ns = spent_ ? spent_->queue_ns : Nanoseconds(*started_ - arrived_);
    // That it took to compute the prompt again, behind which the client has some of the answer, counts for
    // nothing.
    usage.prompt_ns =
        (spent_ ? spent_->prompt_ns : 0) + (begun_ ? 0 : Nanoseconds(*first_token_ - *started_));
    usage.output_ns = OutputNanoseconds();
  }

 private:
  static int64_t Nanoseconds(Clock::duration duration) {
    return std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  }

  const Clock::time_point arrived_;
  const std::optional<api::ipc::Spent> spent_;
  const bool begun_;
  std::optional<Clock::time_point> started_;
  std::optional<Clock::time_point> first_token_;
};

}  // namespace quire::runner::engine
