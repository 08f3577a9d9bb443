#include "scheduler/inspection.h"

#include <fmt/format.h>

#include <exception>
#include <utility>
#include <variant>

namespace quire::scheduler {

using Clock = std::chrono::steady_clock;

Inspection::Inspection(RunnerHost host, api::ipc::InspectModel request, std::chrono::nanoseconds timeout)
    : RunnerSession(std::move(host), "inspect", {request.path}),
      request_(std::move(request)),
      timeout_(timeout) {}

void Inspection::Start() {
  Gate gate = host().gate;
  gate.Start(Run(std::static_pointer_cast<Inspection>(shared_from_this())));
}

boost::asio::awaitable<void> Inspection::Run(std::shared_ptr<Inspection> self) {
  try {
    if (auto asked = co_await self->Ask(); !asked) self->answer_ = std::unexpected(std::move(asked).error());
    self->changed().Notify();
    co_await self->Shut(/*at_once=*/true);
  } catch (const std::exception& e) {
    self->answer_ =
        api::Fail(api::ErrorCode::kUnavailable, std::string("the model runner failed: ") + e.what());
    self->changed().Notify();
    self->Kill();
  }
}

// Success: answer_ is there.
boost::asio::awaitable<api::Result<void>> Inspection::Ask() {
  const Time deadline = Clock::now() + timeout_;
  if (auto opened = co_await Open(deadline); !opened) co_return opened;
  asked_ = true;
  api::ipc::InspectModel request = request_;
  request.files = FilesOf(0);
  Send(request);
  while (!answer_ && !over() && !stop_asked() && Clock::now() < deadline) co_await changed().Wait(deadline);
  if (answer_) co_return api::Result<void>();
  if (stop_asked()) co_return api::Fail(api::ErrorCode::kUnavailable, "the server is shutting down");
  if (over()) {
    const std::string cause = co_await Cause();
    if (answer_) co_return api::Result<void>();
    co_return api::Fail(api::ErrorCode::kRunnerDied,
                        "the model runner ended while it read the model: " + cause);
  }
  co_return api::Fail(api::ErrorCode::kUnavailable,
                      fmt::format("reading the model took longer than {} s",
                                  std::chrono::duration<double>(timeout_).count()));
}

boost::asio::awaitable<api::Result<api::ipc::Inspected>> Inspection::Answer(
    std::shared_ptr<Inspection> self) {
  while (!self->answer_) {
    const bool waited = co_await self->changed().Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client went away");
  }
  api::Result<api::ipc::Inspected> answer = *std::move(self->answer_);
  if (answer && answer->error) co_return std::unexpected(*std::move(answer->error));
  co_return answer;
}

api::Result<void> Inspection::OnRunnerMessage(api::ipc::ToDaemon message) {
  auto* inspected = std::get_if<api::ipc::Inspected>(&message);
  if (inspected && asked_ && !answer_) {
    answer_ = std::move(*inspected);
    changed().Notify();
    return {};
  }
  if (std::holds_alternative<api::ipc::Beat>(message)) return {};
  return api::Fail(api::ErrorCode::kRunnerDied, "a frame that nobody asked for");
}

}  // namespace quire::scheduler
