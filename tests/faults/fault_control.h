// What a test tells the failing allocator and the failing file calls of a process. In shared memory when the
// process is another one: tests/e2e/faults.py has the same fields in the same order.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire::faults {

// A countdown of N: the N-th event from now on fails, and 0 is nothing. Any thread, and any process that maps
// it.
struct FaultControl {
  std::atomic<int64_t> allocation_countdown = 0;  // operator new
  std::atomic<int64_t> allocation_repeats =
      0;  // that fail one after the other from there on, beyond the first
  std::atomic<int64_t> allocations_failed = 0;
  std::atomic<int64_t> file_countdown = 0;  // calls that change regular files and directories
  std::atomic<int64_t> file_repeats = 0;
  std::atomic<int64_t> file_calls_failed = 0;
  std::atomic<int64_t> file_error = 0;               // errno of the failing call, or one of those below
  std::atomic<int64_t> file_delay_microseconds = 0;  // of every such call: a slow disk
  // Delays every call that looks at a file, opens or reads it, below /proc and /sys excepted.
  std::atomic<int64_t> file_read_delay_microseconds = 0;
};

// As file_error: the process is killed, before the call, or, if that writes, after half of its bytes.
inline constexpr int64_t kKillBefore = -1;
inline constexpr int64_t kKillInside = -2;

// The control of this process. From the environment, once: QUIRE_FAULTS names a folder with a file for each
// program that is to be controlled, named as the program; QUIRE_FAIL_ALLOC=N sets allocation_countdown. With
// QUIRE_FAULT_TRACE each failing event writes its stack to standard error.
FaultControl& Faults();

// Counts down. True: this event fails.
bool CountDown(std::atomic<int64_t>& countdown, std::atomic<int64_t>& repeats, std::atomic<int64_t>& failed);
// The same for an allocation of the caller's.
bool CountDownAllocation();

}  // namespace quire::faults
