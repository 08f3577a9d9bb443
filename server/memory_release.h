// Gives freed memory back to the system. The allocator keeps what lies below a block in use, so that after a
// flood of connections hundreds of MiB would stay with an idle daemon.
#pragma once

#include <cstdint>

namespace quire::server {

// I/O thread only.
class MemoryRelease {
 public:
  // From now on large blocks go back at once: what freed bodies leave would else be too small for the next
  // ones, so that a daemon takes twice what it holds.
  MemoryRelease();
  // Releases free memory if there is at least 16 MiB more of it than the last release left. To be called
  // every few seconds; costs milliseconds when it releases, else microseconds.
  void ReleaseIfWorthwhile();

 private:
  int64_t kept_bytes_ = 0;  // resident and not in use after the last release
};

}  // namespace quire::server
