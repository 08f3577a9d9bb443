#include "scheduler/fork_exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "scheduler/runner_process.h"

namespace quire::scheduler {
namespace {

constexpr int kExecFailed = 127;
constexpr int kStatusFd = RunnerProcess::kIpcFd + 1;
static_assert(RunnerProcess::kFirstFileFd == kStatusFd + 1);

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
[[noreturn]] void BecomeRunner(pid_t parent, const char* binary, char* const* argv, const ChildFds& fds) {
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
  ::closefrom(next);
  ResetSignals();
  ::execve(binary, argv, environ);
  Report(kStatusFd);
}

}  // namespace

int ChildFds::Free() const { return RunnerProcess::kFirstFileFd + static_cast<int>(files.size()); }

pid_t ForkExec(const std::string& binary, const std::vector<std::string>& arguments, const ChildFds& fds) {
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(binary.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) BecomeRunner(parent, binary.c_str(), argv.data(), fds);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace quire::scheduler
