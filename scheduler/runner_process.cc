#include "scheduler/runner_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>  // sigabbrev_np
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <system_error>
#include <utility>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 declares these without C linkage
}

#include "api/base/file_descriptor.h"
#include "api/ipc/exit_status.h"
#include "scheduler/fork_exec.h"

namespace quire::scheduler {
namespace {

using boost::asio::as_tuple;
using boost::asio::use_awaitable;
using Socket = boost::asio::local::stream_protocol::socket;

std::unexpected<api::Error> CannotStart(const std::filesystem::path& binary, const char* what, int error) {
  return api::Fail(api::ErrorCode::kUnavailable,
                   fmt::format("cannot start the model runner {}: {}: {}", binary.string(), what,
                               std::generic_category().message(error)));
}

// The descriptors of a start: ours stay, the child's are copied into it by fork and closed here.
struct StartFds {
  api::FileDescriptor program;
  api::FileDescriptor our_ipc, child_ipc;
  api::FileDescriptor our_status, child_status;
  api::FileDescriptor our_output, child_output;
  api::FileDescriptor null;
  std::vector<api::FileDescriptor> files;

  ChildFds ForChild() const {
    ChildFds child{.program = program.get(),
                   .null = null.get(),
                   .output = child_output.get(),
                   .ipc = child_ipc.get(),
                   .status = child_status.get()};
    for (const api::FileDescriptor& file : files) child.files.push_back(file.get());
    return child;
  }
};

// To a number from `free` on, unless it has one.
bool MoveUp(api::FileDescriptor& fd, int free) {
  if (fd.get() >= free) return true;
  fd = api::FileDescriptor(::fcntl(fd.get(), F_DUPFD_CLOEXEC, free));
  if (!fd.valid() && errno == EINVAL) errno = EMFILE;  // `free` itself is beyond the limit
  return fd.valid();
}

// Null on success, else the call that failed, with errno.
const char* OpenFds(const RunnerProgram& program, StartFds& fds) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return "socketpair";
  fds.our_ipc = api::FileDescriptor(pair[0]);
  fds.child_ipc = api::FileDescriptor(pair[1]);
  if (::pipe2(pair.data(), O_CLOEXEC) != 0) return "pipe2";
  fds.our_status = api::FileDescriptor(pair[0]);
  fds.child_status = api::FileDescriptor(pair[1]);
  if (::pipe2(pair.data(), O_CLOEXEC) != 0) return "pipe2";
  fds.our_output = api::FileDescriptor(pair[0]);
  fds.child_output = api::FileDescriptor(pair[1]);
  // Sets it on the child's end only: a runner must not wait for the daemon to read.
  if (::fcntl(fds.child_output.get(), F_SETFL, O_NONBLOCK) != 0) return "fcntl";
  fds.null = api::FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!fds.null.valid()) return "open /dev/null";
  const int free = fds.ForChild().Free();
  bool moved = MoveUp(fds.child_ipc, free) && MoveUp(fds.child_status, free) &&
               MoveUp(fds.child_output, free) && MoveUp(fds.null, free);
  for (api::FileDescriptor& file : fds.files) moved = moved && MoveUp(file, free);
  if (!moved) return "fcntl";
  fds.program = api::FileDescriptor(::fcntl(program.fd(), F_DUPFD_CLOEXEC, free));
  if (!fds.program.valid()) return "fcntl";
  return nullptr;
}

// A runner's filter of system calls lets it send itself these signals only, so any other is from outside.
bool ReportsFault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGABRT ||
         signal == SIGTRAP || signal == SIGSYS;
}

ExitStatus StatusOf(const siginfo_t& info) {
  if (info.si_code != CLD_EXITED) {
    return {.by_signal = true, .value = info.si_status, .external = !ReportsFault(info.si_status)};
  }
  const int signal = info.si_status - api::ipc::kExternalSignalExit;
  if (ReportsFault(signal)) return {.by_signal = true, .value = signal, .external = true};
  return {.by_signal = false, .value = info.si_status};
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (!by_signal) return fmt::format("exited with status {}", value);
  const char* name = ::sigabbrev_np(value);
  const std::string killed = name ? fmt::format("killed by signal {} (SIG{})", value, name)
                                  : fmt::format("killed by signal {}", value);
  return external && ReportsFault(value) ? killed + " from another process" : killed;
}

boost::asio::awaitable<api::Result<std::unique_ptr<RunnerProcess>>> RunnerProcess::Start(
    boost::asio::any_io_executor executor, RunnerProgram program, std::string name,
    std::vector<api::FileDescriptor> files, std::vector<std::string> more_arguments) {
  const std::filesystem::path& binary = program.path();
  if (program.error() != 0) co_return CannotStart(binary, "exec", program.error());
  StartFds fds;
  fds.files = std::move(files);
  if (const char* failed = OpenFds(program, fds)) co_return CannotStart(binary, failed, errno);
  boost::asio::posix::stream_descriptor status(executor, fds.our_status.Release());
  boost::asio::posix::stream_descriptor output(executor, fds.our_output.Release());
  Socket socket(executor, boost::asio::local::stream_protocol(), fds.our_ipc.Release());

  std::vector<std::string> arguments{fmt::format("--ipc-fd={}", kIpcFd), "--name=" + name};
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  const ChildFds child = fds.ForChild();
  const pid_t pid = ForkExec(binary.string(), arguments, child);
  if (pid < 0) co_return CannotStart(binary, "fork", errno);
  const int pidfd = ::pidfd_open(pid, 0);
  if (pidfd < 0) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    co_return CannotStart(binary, "pidfd_open", error);
  }
  std::unique_ptr<RunnerProcess> process(
      new RunnerProcess(executor, pid, pidfd, std::move(socket), std::move(output)));
  fds = StartFds();  // the pipe must have no other writer than the child

  int error = 0;
  const auto [read_error, bytes] = co_await boost::asio::async_read(
      status, boost::asio::buffer(&error, sizeof(error)), as_tuple(use_awaitable));
  if (bytes == sizeof(error)) co_return CannotStart(binary, "exec", error);
  if (read_error != boost::asio::error::eof) co_return CannotStart(binary, "read", read_error.value());
  co_return process;
}

RunnerProcess::RunnerProcess(const boost::asio::any_io_executor& executor, pid_t pid, int pidfd,
                             Socket socket, boost::asio::posix::stream_descriptor output)
    : pid_(pid), pidfd_(executor, pidfd), socket_(std::move(socket)), output_(std::move(output)) {}

RunnerProcess::~RunnerProcess() {
  Send(SIGKILL);
  Reap(0);
}

void RunnerProcess::Send(int signal) {
  if (!exit_) ::pidfd_send_signal(pidfd_.native_handle(), signal, nullptr, 0);
}

// By pid, which is the child's until it is reaped: the pidfd may be non-blocking, and then waitid never
// blocks. `flags` as waitid takes them beside WEXITED. Nothing while the child runs and WNOHANG is given.
std::optional<ExitStatus> RunnerProcess::Reap(int flags) {
  if (exit_) return exit_;
  siginfo_t info{};
  int result = 0;
  do {
    result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | flags);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    exit_ = ExitStatus{.by_signal = false, .value = -1};  // reaped by someone else: how it ended is lost
  } else if (info.si_pid != 0) {
    exit_ = StatusOf(info);
  }
  return exit_;
}

boost::asio::awaitable<std::optional<ExitStatus>> RunnerProcess::Wait() {
  while (!Reap(WNOHANG)) {
    co_await pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read, as_tuple(use_awaitable));
    const auto state = co_await boost::asio::this_coro::cancellation_state;
    if (state.cancelled() != boost::asio::cancellation_type::none) break;
  }
  co_return exit_;
}

}  // namespace quire::scheduler
