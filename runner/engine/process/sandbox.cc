#include "runner/engine/process/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>

#include "api/base/file_descriptor.h"
#include "runner/engine/process/file_rules.h"
#include "runner/engine/process/machine_memory.h"
#include "runner/engine/process/syscall_filter.h"

namespace quire::runner::engine {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kConfine = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kConfine = false;
#else
constexpr bool kConfine = true;
#endif
#else
constexpr bool kConfine = true;
#endif

std::string refused_steps;

// Each text once: the filters of all steps fail alike.
void AddRefused(const std::string& missing) {
  if (refused_steps.contains(missing)) return;
  if (!refused_steps.empty()) refused_steps += ", ";
  refused_steps += missing;
}

// What is missing when a filter cannot be loaded.
std::string Filtered(FilterPhase phase) {
  const int error = LoadSyscallFilter(phase);
  if (error == 0) return {};
  std::string missing =
      fmt::format("system calls are not filtered ({})", std::generic_category().message(error));
  AddRefused(missing);
  return missing;
}

// The runner must still die with its terminal and its daemon: the kernel resets that signal when credentials
// change.
void UnshareNamespaces() {
  const pid_t parent = ::getppid();
  int death_signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &death_signal);
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0) return;
  ::prctl(PR_SET_PDEATHSIG, death_signal);
  if (death_signal != 0 && ::getppid() != parent) std::_Exit(EXIT_FAILURE);
}

void OfferToDieFirst() {
  const api::FileDescriptor fd(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return;
  constexpr std::string_view kScore = "500";
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), kScore.data(), kScore.size());
}

}  // namespace

std::string DropPrivileges() {
  OfferToDieFirst();
  // Read now: templates ask for the local time when no file can be read any more. With TZ set the C library
  // does not look again.
  ::setenv("TZ", ":/etc/localtime", /*overwrite=*/0);
  ::tzset();
  if (!kConfine) return {};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Root may read what belongs to others, but not from a namespace of its own.
  if (::geteuid() != 0) UnshareNamespaces();
  return Filtered(FilterPhase::kSetUp);
}

std::string RestrictThread() { return kConfine ? DenyThreadFiles().missing : std::string(); }

std::string RestrictFileSystem(FileAccess access) {
  if (!kConfine) return {};
  ReadMachineMemory();
  auto [missing, refused] = DenyThreadFiles();
  if (refused) AddRefused(missing);
  const std::string filter =
      Filtered(access == FileAccess::kReadAndWrite ? FilterPhase::kWriting : FilterPhase::kLoading);
  if (!missing.empty() && !filter.empty()) missing += ", ";
  return missing + filter;
}

std::string RestrictToServing() {
  if (!kConfine) return {};
  CloseMachineMemory();
  return Filtered(FilterPhase::kWorking);
}

api::Result<void> CheckSandbox() {
  if (refused_steps.empty()) return {};
  return api::Fail(
      api::ErrorCode::kUnavailable,
      fmt::format("the model runner is not confined: {}; the service or container denies it seccomp or "
                  "Landlock (QUIRE_REQUIRE_SANDBOX=0 loads models nevertheless)",
                  refused_steps));
}

}  // namespace quire::runner::engine
