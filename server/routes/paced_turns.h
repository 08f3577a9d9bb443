// Work on the I/O thread that takes up to milliseconds and cannot run on another one: clients that ask for
// much of it leave the thread to others.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "api/base/error.h"
#include "scheduler/job_slots.h"
#include "server/http/awaitable.h"

namespace quire::server {

// I/O thread only; outlives every call. One piece of work runs at a time. Parties (http/party.h) take turns.
// After each piece the next one waits four times as long as it took, so that all of them together take a
// fifth of the thread's time.
class PacedTurns {
 public:
  using Work = std::function<std::string()>;

  explicit PacedTurns(const boost::asio::any_io_executor& executor);

  // Runs the work in the turn of its party. Errors of JobSlots::Acquire; what it throws is thrown.
  Awaitable<api::Result<std::string>> Run(std::string party, Work work);

 private:
  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<scheduler::JobSlots> slots_;
  Clock::time_point next_at_{};
};

}  // namespace quire::server
