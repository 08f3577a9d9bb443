#include "runner/engine/sandbox.h"

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
#include "runner/engine/file_rules.h"
#include "runner/engine/syscall_filter.h"
#include "runner/weights/scratch_file.h"

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

// What is missing when a filter cannot be loaded.
std::string Filtered(FilterPhase phase) {
  const int error = LoadSyscallFilter(phase);
  if (error == 0) return {};
  return fmt::format("system calls are not filtered ({})", std::generic_category().message(error));
}

FileRules RulesOf(const WritableFolders& folders) {
  FileRules rules{.readable = {"/proc/self/cgroup", "/proc/self/statm", "/proc/meminfo", "/proc/cpuinfo",
                               "/sys/fs/cgroup", "/sys/devices/system/cpu"},
                  .writable = {}};
  if (folders.temporary) rules.writable.push_back(weights::TemporaryFolder());
  if (!folders.output.empty()) rules.writable.push_back(folders.output);
  return rules;
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

std::string RestrictThread(const WritableFolders& folders) {
  return kConfine ? RestrictThreadFiles(RulesOf(folders)) : std::string();
}

std::string RestrictFileSystem(const WritableFolders& folders) {
  if (!kConfine) return {};
  std::string missing = RestrictThread(folders);
  const bool writes = folders.temporary || !folders.output.empty();
  const std::string filter = Filtered(writes ? FilterPhase::kWriting : FilterPhase::kLoading);
  if (!missing.empty() && !filter.empty()) missing += ", ";
  return missing + filter;
}

std::string DenyFileOpens() { return kConfine ? Filtered(FilterPhase::kWorking) : std::string(); }

}  // namespace quire::runner::engine
