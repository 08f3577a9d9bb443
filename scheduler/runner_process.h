// One quire-runner process: how it is started, signaled and reaped.
//
// The child gets standard input from /dev/null, a pipe as standard output and error (which drops what it
// writes while the pipe is full), its end of a socketpair as descriptor kIpcFd, the files that it is given
// from kFirstFileFd on, and no other descriptor; the variables that runners read, and no others; default
// signal handlers and an empty mask; a process group of its own, so that Ctrl-C in a terminal reaches the
// daemon alone; and SIGKILL when the thread that started it ends.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "api/ipc/messages.h"
#include "scheduler/runner_program.h"

namespace quire::scheduler {

struct ExitStatus {
  bool by_signal = false;
  int value = 0;  // exit status, or signal number
  // Another process sent the signal. Certain unless the runner reports it (api/ipc/exit_status.h): then it
  // may be false.
  bool external = false;

  // "exited with status 3", "killed by signal 9 (SIGKILL)", "killed by signal 11 (SIGSEGV) from another
  // process"
  std::string ToString() const;
};

// I/O thread only, and that thread must live as long as the daemon: the kernel ends the child with it.
class RunnerProcess {
 public:
  static constexpr int kIpcFd = 3;
  static constexpr int kFirstFileFd = api::ipc::kFirstModelFd;

  // Runs `program --ipc-fd=3 --name=<name>` and waits until it is the new program. `files`, which are closed
  // here once the child has them, become kFirstFileFd and the numbers that follow. kUnavailable names its
  // path and the reason when that fails. Canceling the awaiting coroutine ends the child.
  static boost::asio::awaitable<api::Result<std::unique_ptr<RunnerProcess>>> Start(
      boost::asio::any_io_executor executor, RunnerProgram program, std::string name,
      std::vector<api::FileDescriptor> files = std::vector<api::FileDescriptor>(),
      std::vector<std::string> more_arguments = std::vector<std::string>());

  // Kills and reaps the child if that has not happened; blocks for as long as the kernel takes to end it.
  ~RunnerProcess();
  RunnerProcess(const RunnerProcess&) = delete;
  RunnerProcess& operator=(const RunnerProcess&) = delete;

  pid_t pid() const { return pid_; }
  boost::asio::local::stream_protocol::socket TakeSocket() { return std::move(socket_); }
  // The end of its standard output and error that is read.
  boost::asio::posix::stream_descriptor TakeOutput() { return std::move(output_); }

  // Nothing happens once the child is reaped: the pid may be another's by then.
  void Send(int signal);
  // Waits for the child to end and reaps it. At most one call at a time. Returns early, with nothing, only
  // when the awaiting coroutine is canceled.
  boost::asio::awaitable<std::optional<ExitStatus>> Wait();

 private:
  RunnerProcess(const boost::asio::any_io_executor& executor, pid_t pid, int pidfd,
                boost::asio::local::stream_protocol::socket socket,
                boost::asio::posix::stream_descriptor output);
  std::optional<ExitStatus> Reap(int flags);

  pid_t pid_;
  boost::asio::posix::stream_descriptor pidfd_;
  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::posix::stream_descriptor output_;
  std::optional<ExitStatus> exit_;
};

}  // namespace quire::scheduler
