#include "scheduler/conversion.h"

#include <utility>
#include <variant>

namespace quire::scheduler {

Conversion::Conversion(RunnerHost host, api::ipc::ConvertModel request, std::shared_ptr<const void> kept,
                       std::chrono::nanoseconds patience)
    : OneOffJob(
          std::move(host), "convert", {request.from}, patience,
          {.died_while = "converting the model", .too_long = "converting the model made no progress for"}),
      request_(std::move(request)),
      kept_(std::move(kept)) {}

void Conversion::SendRequest() {
  request_.files = FilesOf(0);
  Send(request_);
}

boost::asio::awaitable<api::Result<std::optional<float>>> Conversion::Next(std::shared_ptr<Conversion> self) {
  while (true) {
    if (self->fraction_ > self->reported_) co_return self->reported_ = self->fraction_;
    if (self->answer_ && !*self->answer_) co_return std::unexpected(self->answer_->error());
    if (self->answer_) co_return std::nullopt;
    const bool waited = co_await self->changed().Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
}

api::Result<void> Conversion::OnRunnerMessage(api::ipc::ToDaemon message) {
  if (const auto* progress = std::get_if<api::ipc::LoadProgress>(&message); progress && request_sent()) {
    if (progress->fraction > fraction_) {
      fraction_ = progress->fraction;
      Progressed();
    }
    return {};
  }
  if (const auto* converted = std::get_if<api::ipc::Converted>(&message);
      converted && request_sent() && !answer_) {
    answer_ = converted->error ? api::Result<void>(std::unexpected(*converted->error)) : api::Result<void>();
    changed().Notify();
    return {};
  }
  if (std::holds_alternative<api::ipc::Heartbeat>(message)) return {};
  return api::Fail(api::ErrorCode::kRunnerDied, "unexpected message");
}

}  // namespace quire::scheduler
