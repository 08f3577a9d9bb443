// The life of one runner process with its link, whatever it is started for: start, hello, frames, end,
// reaping.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "api/ipc/messages.h"
#include "scheduler/async_event.h"
#include "scheduler/file_opener.h"
#include "scheduler/gate.h"
#include "scheduler/model_descriptors.h"
#include "scheduler/runner_link.h"
#include "scheduler/runner_process.h"
#include "scheduler/snapshot_tier.h"

namespace quire::scheduler {

// How every runner of a daemon is started and stopped.
struct RunnerHost {
  boost::asio::any_io_executor executor;
  Gate gate;  // counts every coroutine below
  RunnerProgram program;
  std::chrono::nanoseconds stop_grace;  // from the Shutdown message until SIGKILL
  std::shared_ptr<FileOpener> opener;
  std::shared_ptr<SnapshotTier> snapshots = {};  // null: none
  std::vector<std::string> arguments = {};       // of every runner
  size_t link_bytes_max = RunnerLink::kQueuedBytesMax;
};

// I/O thread only; held by shared_ptr. A derived class runs Open(), then its own frames, then Shut(), in one
// coroutine.
class RunnerSession : public RunnerLink::Listener, public std::enable_shared_from_this<RunnerSession> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  int pid() const { return process_ ? process_->pid() : 0; }
  // Asks the session to stop: frames stop, Shut() follows. With `at_once` the process is not asked first.
  void Stop(bool at_once);

 protected:
  // `models`: those that the job is about; an empty path is none, and has no files.
  RunnerSession(RunnerHost host, std::string name, std::vector<std::filesystem::path> models);

  // Opens the models' files, starts the process with them and waits for its Hello. Errors of
  // OpenModelFiles; kUnavailable when it cannot be started or is not up by `deadline`; kRunnerDied when it
  // ends before.
  boost::asio::awaitable<api::Result<void>> Open(Time deadline);
  // The process's descriptor of the model file at that index. REQUIRES: Open() succeeded.
  const std::vector<api::ipc::ModelFile>& FilesOf(size_t place) const { return files_.at(place); }
  // "NAME:VERSION " of each of them (OpenFile::version). REQUIRES: AddDescriptors() was called.
  std::string VersionsOf(size_t place) const;
  void Send(const api::ipc::ToRunner& message);
  // Why the runner is no longer of use, once it is not: "killed by signal 9 (SIGKILL)". Waits a moment for
  // the other half of the news: the last frames of a process that ended, the status of one that closed its
  // link.
  boost::asio::awaitable<std::string> Cause();
  // Stops and reaps the process and closes the link: Shutdown, half the grace, SIGTERM, the other half,
  // SIGKILL; straight to SIGKILL when it broke the protocol, was stopped at once, or `at_once`. Returns when
  // the process is reaped.
  boost::asio::awaitable<void> Shut(bool at_once);

  // What the process gets beside the models' files, which `files` are: descriptors to append, and the
  // arguments that name them. Called once, before it is started.
  virtual std::vector<std::string> AddDescriptors(std::vector<api::FileDescriptor>& /*files*/) { return {}; }

  // SIGKILL without waiting for anything; the process is reaped in its own time.
  void Kill();

  // A frame after Hello. An error is a protocol error.
  virtual api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) = 0;

  bool stop_requested() const { return stop_requested_; }
  const std::optional<ExitStatus>& exit_status() const { return exit_; }  // once reaped
  bool over() const { return exit_.has_value() || link_end_.has_value(); }
  Time over_since() const { return over_since_; }  // its first sign. REQUIRES: over()
  RunnerLink* link() { return link_.get(); }
  AsyncEvent& changed() { return changed_; }  // notified on Hello, the end and Stop(), and by derived classes
  const std::string& name() const { return name_; }
  const RunnerHost& host() const { return host_; }

 private:
  api::Result<void> OnMessage(api::ipc::ToDaemon message) final;
  void OnLinkEnd(const LinkEnd& end) final;
  static boost::asio::awaitable<void> WatchExit(std::shared_ptr<RunnerSession> self);
  boost::asio::awaitable<bool> ExitedBy(Time until);
  boost::asio::awaitable<api::Result<std::vector<api::FileDescriptor>>> OpenFiles(Time deadline);

  RunnerHost host_;
  std::string name_;
  AsyncEvent changed_;
  const std::vector<std::filesystem::path> models_;
  std::optional<api::Result<FileOpener::Files>> opened_;
  std::vector<std::vector<api::ipc::ModelFile>> files_;  // of the process, likewise
  std::unique_ptr<RunnerProcess> process_;
  std::shared_ptr<RunnerLink> link_;
  bool hello_ = false;
  bool stop_requested_ = false;
  bool at_once_ = false;
  std::optional<ExitStatus> exit_;
  std::optional<LinkEnd> link_end_;
  Time over_since_{};
};

}  // namespace quire::scheduler
