// Lets coroutines wait for a change: a waiter checks its condition, waits, and checks again.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <list>

#include "scheduler/clock.h"

namespace quire::scheduler {

// I/O thread only. The waiter keeps the AsyncEvent alive. Notifications are not stored: a Notify() without a
// waiter has no effect, and since all run on one thread none falls between a check and the wait that follows
// it.
class AsyncEvent {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit AsyncEvent(boost::asio::any_io_executor executor);
  AsyncEvent(const AsyncEvent&) = delete;
  AsyncEvent& operator=(const AsyncEvent&) = delete;

  const boost::asio::any_io_executor& executor() const { return executor_; }
  // Until the next Notify(), `until`, or cancellation of the awaiting coroutine, whichever comes first. False
  // when it is canceled: then nothing more should be awaited.
  boost::asio::awaitable<bool> Wait(Time until = Time::max());
  // Wakes everyone who waits now; they run later, not inside this call.
  void Notify();

 private:
  boost::asio::any_io_executor executor_;
  std::list<Timer*> waiters_;
};

}  // namespace quire::scheduler
