// Counts the coroutines that run on their own, so that a shutdown can wait for the last of them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>

#include "scheduler/async_event.h"

namespace quire::scheduler {

// I/O thread only. Copies share one count, so it may be passed to the code that starts coroutines and outlive
// its maker.
class Gate {
 public:
  explicit Gate(boost::asio::any_io_executor executor);

  // Starts `work` on the executor, never inside this call, and counts it until it has ended or is destroyed.
  // REQUIRES: `work` owns what it uses. An exception that leaves it is logged.
  void Start(boost::asio::awaitable<void> work);
  int inside() const;
  // Until nothing is inside, or the awaiting coroutine is canceled.
  boost::asio::awaitable<void> Empty();

 private:
  struct Count;
  class Pass;
  boost::asio::any_io_executor executor_;
  std::shared_ptr<Count> count_;
};

}  // namespace quire::scheduler
