// Memory that the daemon holds back for the moment when an allocation fails.
//
// The handler of operator new gives it up, so that the allocation that failed succeeds and its thread goes
// on; the daemon takes it back when there is memory again. While it is given up, failing allocations throw
// std::bad_alloc, which ends the one request that needed it. A second part of the same size is for what
// cannot fail: work in an api::ReservedMemoryScope, and aligned_alloc(), from which Asio has its operations
// and the frames of coroutines.
#pragma once

#include <cstddef>

namespace quire::server {

// One per process; installs the handler.
class MemoryReserve {
 public:
  explicit MemoryReserve(size_t bytes);  // of each part
  ~MemoryReserve();                      // removes the handler
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Takes the reserve back if it was given up and there is memory. True when it had been given up since the
  // last call. One thread.
  bool Refill();
  // Any thread.
  static bool given_up();
};

}  // namespace quire::server
