#include "scheduler/inspection.h"

#include <utility>
#include <variant>

namespace quire::scheduler {

Inspection::Inspection(RunnerHost host, api::ipc::InspectModel request, std::chrono::nanoseconds timeout)
    : OneOffJob(std::move(host), "inspect", {request.path, request.draft_path, request.projector_path},
                timeout,
                {.died_while = "reading the model", .too_long = "reading the model took longer than"}),
      request_(std::move(request)) {}

void Inspection::SendRequest() {
  request_.files = FilesOf(0);
  request_.draft_files = FilesOf(1);
  request_.projector_files = FilesOf(2);
  Send(request_);
}

boost::asio::awaitable<api::Result<api::ipc::Inspected>> Inspection::Answer(
    std::shared_ptr<Inspection> self) {
  while (!self->answer_) {
    const bool waited = co_await self->changed().Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  api::Result<api::ipc::Inspected> answer = *std::move(self->answer_);
  if (answer && answer->error) co_return std::unexpected(*std::move(answer->error));
  co_return answer;
}

api::Result<void> Inspection::OnRunnerMessage(api::ipc::ToDaemon message) {
  auto* inspected = std::get_if<api::ipc::Inspected>(&message);
  if (inspected && request_sent() && !answer_) {
    answer_ = std::move(*inspected);
    changed().Notify();
    return {};
  }
  if (std::holds_alternative<api::ipc::Heartbeat>(message)) return {};
  return api::Fail(api::ErrorCode::kRunnerDied, "unexpected message");
}

}  // namespace quire::scheduler
