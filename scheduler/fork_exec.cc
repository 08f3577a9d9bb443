#include "scheduler/fork_exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "scheduler/runner_process.h"

namespace quire::scheduler {
namespace {

constexpr int kExecFailed = 127;
constexpr int kStatusFd = RunnerProcess::kIpcFd + 1;
static_assert(RunnerProcess::kFirstFileFd == kStatusFd + 1);

// What a runner, its libraries and the tests' faults read; PATH is for a script in the place of a runner. The
// daemon's environment has more: passwords of other services, paths of credentials, the tokens of the shell
// that started it.
constexpr std::array kPassed = std::to_array<std::string_view>(
    {"ASAN_OPTIONS", "GLIBC_TUNABLES", "LLVM_PROFILE_FILE", "LSAN_OPTIONS", "PATH", "QUIRE_CHECK_INVARIANTS",
     "QUIRE_DRAFT_TOKENS", "QUIRE_FAIL_ALLOC", "QUIRE_FAULTS", "QUIRE_FAULT_TRACE",
     "QUIRE_SNAPSHOT_ALWAYS_FETCH", "QUIRE_STUCK_PREPARATION", "TMPDIR", "TSAN_OPTIONS", "TZ", "TZDIR",
     "UBSAN_OPTIONS"});
static_assert(std::ranges::is_sorted(kPassed));
// Variables of the loader, the allocator, OpenBLAS, coverage, and an emulator of another processor.
constexpr std::array kPassedPrefixes =
    std::to_array<std::string_view>({"GCOV_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "QEMU_"});

bool IsPassed(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::ranges::binary_search(kPassed, name) ||
         std::ranges::any_of(kPassedPrefixes,
                             [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// Its end is a null pointer, as execve() takes it.
std::vector<char*> RunnerEnvironment() {
  std::vector<char*> passed;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (IsPassed(*variable)) passed.push_back(*variable);
  }
  passed.push_back(nullptr);
  return passed;
}

[[noreturn]] void Report(int status_fd) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(status_fd, &error, sizeof(error));
  ::_exit(kExecFailed);
}

// Handlers of the daemon must not run here, and a signal it ignores would stay ignored over exec.
void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Runs in the child: async-signal-safe calls only.
// An interpreter (of a script, of another processor's programs) opens the path itself: for a descriptor that
// closes the kernel says that there is no such file.
void Execute(int program, char* const* argv, char* const* variables) {
  ::fexecve(program, argv, variables);
  if (errno == ENOENT || errno == ENOSYS) ::execve(argv[0], argv, variables);
}

[[noreturn]] void BecomeRunner(pid_t parent, char* const* argv, char* const* variables, const ChildFds& fds) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) Report(fds.status);
  // The parent may have died before the call above: then no signal will come.
  if (::getppid() != parent) ::_exit(kExecFailed);
  ::setpgid(0, 0);
  if (::dup2(fds.null, STDIN_FILENO) < 0 || ::dup2(fds.output, STDOUT_FILENO) < 0 ||
      ::dup2(fds.output, STDERR_FILENO) < 0 || ::dup2(fds.ipc, RunnerProcess::kIpcFd) < 0 ||
      ::dup3(fds.status, kStatusFd, O_CLOEXEC) < 0) {
    Report(fds.status);
  }
  int next = RunnerProcess::kFirstFileFd;
  for (const int file : fds.files) {
    if (::dup2(file, next++) < 0) Report(kStatusFd);
  }
  // All others have been copied: their numbers are free now.
  if (fds.program != next && ::dup3(fds.program, next, O_CLOEXEC) < 0) Report(kStatusFd);
  ::closefrom(next + 1);
  ResetSignals();
  Execute(next, argv, variables);
  Report(kStatusFd);
}

}  // namespace

int ChildFds::Free() const { return RunnerProcess::kFirstFileFd + static_cast<int>(files.size()); }

pid_t ForkExec(const std::string& binary, const std::vector<std::string>& arguments, const ChildFds& fds) {
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(binary.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::vector<char*> variables = RunnerEnvironment();

  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) BecomeRunner(parent, argv.data(), variables.data(), fds);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace quire::scheduler
