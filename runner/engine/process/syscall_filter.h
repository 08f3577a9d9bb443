// The system calls that a runner may make, filtered by seccomp with their arguments. Everything else fails
// with EPERM, which library code takes for "not allowed here" and tolerates; clone3 fails with ENOSYS, so
// that the C library falls back to clone, whose flags a filter can read.
//
// Invariants, in every phase: no signal to another process; of the own process only signals that report a
// fault, so SIGKILL always comes from outside; nothing about another process is read or set; no executable
// memory; no descriptor is sent or received; no thread gets a higher priority than the process had when it
// set itself up. Behind kSetUp no path is looked up, so nothing tells whether a file exists.
#pragma once

#include <cstdint>

namespace quire::runner::engine {

enum class FilterPhase : uint8_t {
  kSetUp,    // the process sets itself up; no model or request was read
  kWriting,  // a model is read, and open files are written: a conversion, or
             // quantization on load
  kLoading,  // a model is read
  kWorking,  // requests are served; all threads are there
};

// Restricts all threads of this process, for good, in addition to the filters of earlier phases. Zero, or the
// errno of the kernel, which then applies nothing. Any thread.
[[nodiscard]] int LoadSyscallFilter(FilterPhase phase);

// Writes the program that the kernel would get on another architecture (libseccomp's SCMP_ARCH_...), an array
// of struct sock_filter. Zero or an errno. For tests: a filter cannot be tried where it does not belong.
[[nodiscard]] int ExportSyscallFilter(FilterPhase phase, uint32_t architecture, int descriptor);

}  // namespace quire::runner::engine
