#include "scheduler/runner_session.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <variant>

#include "api/base/file_descriptor.h"
#include "scheduler/clock.h"
#include "scheduler/runner_output.h"

namespace quire::scheduler {
namespace {

// How long the status of a process that closed its link, or the last frames of one that ended, may take.
constexpr std::chrono::seconds kLastWords{1};

}  // namespace

RunnerSession::RunnerSession(RunnerHost host, std::string name, std::vector<std::filesystem::path> models)
    : host_(std::move(host)), name_(std::move(name)), changed_(host_.executor), models_(std::move(models)) {}

void RunnerSession::Stop(bool at_once) {
  stop_requested_ = true;
  at_once_ = at_once_ || at_once;
  changed_.Notify();
}

// The descriptors of all files, in the order of their numbers in the process; files_ is set.
boost::asio::awaitable<api::Result<std::vector<api::FileDescriptor>>> RunnerSession::OpenFiles(
    Time deadline) {
  host_.opener->Open(models_, [weak = weak_from_this()](api::Result<FileOpener::Files> opened) {
    const auto self = weak.lock();
    if (!self) return;
    self->opened_ = std::move(opened);
    self->changed_.Notify();
  });
  while (!opened_ && !stop_requested_ && Clock::now() < deadline) co_await changed_.Wait(deadline);
  if (!opened_) {
    co_return api::Fail(api::ErrorCode::kUnavailable, "opening the model files timed out");
  }
  if (!*opened_) co_return std::unexpected(opened_->error());
  std::vector<api::FileDescriptor> fds;
  for (std::vector<OpenFile>& model : **opened_) {
    files_.emplace_back();
    for (OpenFile& file : model) {
      const int fd = RunnerProcess::kFirstFileFd + static_cast<int>(fds.size());
      files_.back().push_back({std::move(file.name), fd});
      fds.push_back(std::move(file.fd));
    }
  }
  co_return fds;
}

std::string RunnerSession::VersionsOf(size_t place) const {
  std::string versions;
  const std::vector<OpenFile>& opened = opened_->value().at(place);
  for (size_t i = 0; i < opened.size(); ++i)
    versions += fmt::format("{}:{} ", files_.at(place)[i].name, opened[i].version);
  return versions;
}

boost::asio::awaitable<api::Result<void>> RunnerSession::Open(Time deadline) {
  auto files = co_await OpenFiles(deadline);
  if (!files) co_return std::unexpected(std::move(files).error());
  std::vector<std::string> arguments = AddDescriptors(*files);
  arguments.insert(arguments.end(), host_.arguments.begin(), host_.arguments.end());
  auto process = co_await RunnerProcess::Start(host_.executor, host_.program, name_, *std::move(files),
                                               std::move(arguments));
  if (!process) co_return std::unexpected(std::move(process).error());
  process_ = *std::move(process);
  spdlog::debug("runner started model={} runner_pid={}", name_, pid());
  host_.gate.Start(LogRunnerOutput(process_->TakeOutput(), name_, pid()));
  link_ = std::make_shared<RunnerLink>(process_->TakeSocket(), weak_from_this(), host_.link_bytes_max);
  link_->Start(host_.gate);
  host_.gate.Start(WatchExit(shared_from_this()));

  while (!hello_ && !over() && !stop_requested_ && Clock::now() < deadline) co_await changed_.Wait(deadline);
  if (hello_) co_return api::Result<void>();
  if (over()) {
    const std::string cause = co_await Cause();
    co_return api::Fail(api::ErrorCode::kRunnerDied, "the model runner died during startup: " + cause);
  }
  co_return api::Fail(api::ErrorCode::kUnavailable, "the model runner did not start in time");
}

void RunnerSession::Send(const api::ipc::ToRunner& message) {
  if (link_) link_->Send(message);
}

boost::asio::awaitable<std::string> RunnerSession::Cause() {
  const bool protocol_error = link_end_ && link_end_->protocol_error;
  if (!protocol_error) {
    const Time until = Clock::now() + kLastWords;
    while (!(exit_ && link_end_) && Clock::now() < until) co_await changed_.Wait(until);
  }
  if (link_end_ && link_end_->protocol_error) co_return link_end_->reason;
  if (exit_) co_return exit_->ToString();
  co_return link_end_ ? link_end_->reason : std::string("stopped by the daemon");
}

boost::asio::awaitable<void> RunnerSession::Shut(bool at_once) {
  if (!process_) co_return;
  at_once_ = at_once_ || at_once || link_end_;
  if (!at_once_) {
    Send(api::ipc::Shutdown{});
    const bool exited = co_await ExitedBy(Clock::now() + host_.stop_grace / 2);
    if (!exited) {
      process_->Send(SIGTERM);
      co_await ExitedBy(Clock::now() + host_.stop_grace / 2);
    }
  }
  if (!exit_) process_->Send(SIGKILL);
  while (!exit_) co_await changed_.Wait();
  link_->Close();
  spdlog::debug("runner exited model={} runner_pid={} exit=\"{}\"", name_, pid(), exit_->ToString());
}

void RunnerSession::Kill() {
  if (process_) process_->Send(SIGKILL);
  if (link_) link_->Close();
}

// Whether the process has ended, waiting no longer than `until` and not at all once it is to end at once.
boost::asio::awaitable<bool> RunnerSession::ExitedBy(Time until) {
  while (!exit_ && !at_once_ && Clock::now() < until) co_await changed_.Wait(until);
  co_return exit_.has_value();
}

boost::asio::awaitable<void> RunnerSession::WatchExit(std::shared_ptr<RunnerSession> self) {
  const std::optional<ExitStatus> exit = co_await self->process_->Wait();
  if (!self->over()) self->over_since_ = Clock::now();
  self->exit_ = exit;
  self->changed_.Notify();
}

api::Result<void> RunnerSession::OnMessage(api::ipc::ToDaemon message) {
  if (hello_) return OnRunnerMessage(std::move(message));
  const auto* hello = std::get_if<api::ipc::Hello>(&message);
  if (!hello) return api::Fail(api::ErrorCode::kRunnerDied, "the first message is not Hello");
  if (hello->version != api::ipc::kVersion) {
    return api::Fail(api::ErrorCode::kRunnerDied,
                     fmt::format("it uses protocol version {}, not {}", hello->version, api::ipc::kVersion));
  }
  hello_ = true;
  changed_.Notify();
  return {};
}

void RunnerSession::OnLinkEnd(const LinkEnd& end) {
  if (!over()) over_since_ = Clock::now();
  link_end_ = end;
  changed_.Notify();
}

}  // namespace quire::scheduler
