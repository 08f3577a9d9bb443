// The mark of the daemon's I/O thread, which serves all clients: nothing that can block may run on it.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

namespace quire::api {

namespace internal {
inline thread_local bool on_io_thread = false;
inline std::atomic<uint64_t> blocking_calls = 0;
}  // namespace internal

// The thread that makes this is the I/O thread as long as this lives.
class IoThreadMark {
 public:
  IoThreadMark() { internal::on_io_thread = true; }
  ~IoThreadMark() { internal::on_io_thread = false; }
  IoThreadMark(const IoThreadMark&) = delete;
  IoThreadMark& operator=(const IoThreadMark&) = delete;
};

// For functions that may block. A build with asserts aborts when this is the I/O thread; others count the
// call.
inline void AssertMayBlock() {
  if (!internal::on_io_thread) [[likely]]
    return;
  ++internal::blocking_calls;
  assert(false && "a call that may block, on the I/O thread");
}

// Calls of AssertMayBlock() on an I/O thread in this process; any thread.
inline uint64_t BlockingCallsOnIoThread() { return internal::blocking_calls; }

}  // namespace quire::api
