// What a request has had of its runners, as seen from here: a runner that dies takes its own count with it.
//
// A runner's time counts from what it said first to what it said last, so that neither loads between two
// runners nor what the next one computes again are in it. Pure; not thread-safe.
//
// It measures what one request had and shares nothing: the governor has no part in it.
#pragma once

#include <chrono>
#include <optional>

#include "api/base/event.h"
#include "api/ipc/messages.h"

namespace quire::scheduler {

class AnswerTimes {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Sent(Time now);  // to a runner, for the first time or again
  void Record(const api::Event& event, Time now);
  // Nothing: no runner has started it.
  const std::optional<api::ipc::Spent>& spent() const { return spent_; }

 private:
  Time since_{};          // what counts next begins here
  bool begun_ = false;    // some of the answer came, from any runner
  bool resumed_ = false;  // this runner has still to send something new of an answer that has begun
  std::optional<api::ipc::Spent> spent_;
};

}  // namespace quire::scheduler
