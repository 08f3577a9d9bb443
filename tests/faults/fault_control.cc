#include "tests/faults/fault_control.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace quire::faults {
namespace {

// Allocates nothing: it is called before main().
FaultControl* Map() {
  static FaultControl own;
  if (const char* countdown = ::getenv("QUIRE_FAIL_ALLOC")) own.allocation_countdown = ::atoll(countdown);
  const char* folder = ::getenv("QUIRE_FAULTS");
  std::array<char, 4096> program{};
  if (folder == nullptr || ::readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) return &own;
  const char* const slash = ::strrchr(program.data(), '/');
  std::array<char, 8192> path{};
  ::snprintf(path.data(), path.size(), "%s/%s", folder, slash == nullptr ? program.data() : slash + 1);
  // Not open(): that one asks for what is made here.
  const auto fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.data(), O_RDWR | O_CLOEXEC));
  if (fd < 0) return &own;
  void* const page = ::mmap(nullptr, sizeof(FaultControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return page == MAP_FAILED ? &own : static_cast<FaultControl*>(page);
}

}  // namespace

FaultControl& Faults() {
  static FaultControl* const control = Map();
  return *control;
}

bool CountDown(std::atomic<int64_t>& countdown, std::atomic<int64_t>& repeats, std::atomic<int64_t>& failed) {
  if (countdown.load(std::memory_order_relaxed) <= 0) return false;
  const int64_t left = --countdown;
  if (left > 0) return false;
  if (left < 0) {  // another thread was faster
    countdown = 0;
    return false;
  }
  if (repeats > 0) {
    --repeats;
    countdown = 1;
  }
  ++failed;
  static const bool trace = ::getenv("QUIRE_FAULT_TRACE") != nullptr;
  if (trace) {
    std::array<void*, 64> frames{};
    ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), 64), STDERR_FILENO);
  }
  return true;
}

bool CountDownAllocation() {
  FaultControl& faults = Faults();
  return CountDown(faults.allocation_countdown, faults.allocation_repeats, faults.allocations_failed);
}

}  // namespace quire::faults
