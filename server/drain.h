// The end of a daemon: at SIGTERM or SIGINT it accepts nothing more, answers what it has read, and lets
// requests finish until a deadline. A second signal ends the process at once. I/O thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <functional>

#include "scheduler/dispatcher.h"
#include "server/http/awaitable.h"
#include "server/http/server.h"

namespace quire::server {

// Its coroutines outlast AtSignal(): it lives as long as the io_context runs.
class Drain {
 public:
  // `timeout` may change until the signal comes. `stop_work`: called when nobody waits for the results of
  // work on other threads any more, so that it ends early.
  Drain(boost::asio::io_context& io, HttpServer& server, scheduler::Dispatcher& dispatcher,
        const std::chrono::nanoseconds& timeout, std::function<void()> stop_work);
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  // Waits for a signal and drains. `activated`: the service manager holds the sockets.
  Awaitable<void> AtSignal(bool activated);
  // Once the io_context has stopped: from then on a signal ends the process at once, as the second one did
  // before.
  void ExitAtSignals();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  Awaitable<void> EndAtSecondSignal();
  Awaitable<void> FinishRequests(TimePoint deadline);
  Awaitable<void> AnswerLastRequests();
  Awaitable<void> ExtendStopTimeout();

  boost::asio::io_context::executor_type executor_;
  HttpServer& server_;
  scheduler::Dispatcher& dispatcher_;
  const std::chrono::nanoseconds& drain_timeout_;
  std::function<void()> stop_work_;
  boost::asio::signal_set signals_;
};

}  // namespace quire::server
