// The I/O thread's io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>

namespace quire::server {

// Has room for kTimers that run at once, of each clock, from the beginning. A queue of timers that grew when
// a coroutine begins to wait would lose the coroutine where there is no memory: Asio has moved it into the
// operation by then.
class IoContext : public boost::asio::io_context {
 public:
  static constexpr size_t kTimers = 4096;

  IoContext();
  // Destroys all coroutines and handlers that still wait, before what they refer to is gone.
  // REQUIRES: nothing runs in it, and nothing will.
  void DestroyWaiting() { shutdown(); }
};

}  // namespace quire::server
