#include "runner/engine/process/crash_handler.h"

#include <fmt/format.h>
#include <string.h>  // sigabbrev_np
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>

#include "api/ipc/exit_status.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

// A signal that a process sent, with its id in si_pid: the kernel fills in both for a sender without
// privileges over this process.
bool FromAnotherProcess(const siginfo_t& info) {
  const bool sent = info.si_code == SI_USER || info.si_code == SI_TKILL || info.si_code == SI_QUEUE;
  return sent && info.si_pid != ::getpid();
}

// Async-signal-safe: formats into its own stack.
void PrintSignal(int signal, const siginfo_t& info, bool external) {
  std::array<char, 128> line{};
  const char* const name = ::sigabbrev_np(signal);
  const auto end = external ? fmt::format_to_n(line.data(), line.size(),
                                               "quire-runner: SIG{} sent by process {} of user {}\n", name,
                                               info.si_pid, info.si_uid)
                            : fmt::format_to_n(line.data(), line.size(), "quire-runner: fatal SIG{}\n", name);
  LogLastLine(line.data(), static_cast<size_t>(end.out - line.data()));
}

// SA_RESETHAND: the signal has its default action again.
void OnFault(int signal, siginfo_t* info, void* /*context*/) {
  const bool external = FromAnotherProcess(*info);
  PrintSignal(signal, *info, external);
  if (external) ::_exit(api::ipc::kExternalSignalExit + signal);
  ::raise(signal);  // pending until this returns
}

}  // namespace

void InstallCrashHandler() {
  for (const int signal : kFaults) {
    struct sigaction present {};
    if (::sigaction(signal, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace quire::runner::engine
