#include "scheduler/conversion.h"

#include <fmt/format.h>

#include <exception>
#include <utility>
#include <variant>

namespace quire::scheduler {

using Clock = std::chrono::steady_clock;

Conversion::Conversion(RunnerHost host, api::ipc::ConvertModel request, std::shared_ptr<const void> kept,
                       std::chrono::nanoseconds patience)
    : RunnerSession(std::move(host), "convert", {request.from}),
      request_(std::move(request)),
      kept_(std::move(kept)),
      patience_(patience) {}

void Conversion::Start() {
  Gate gate = host().gate;
  gate.Start(Run(std::static_pointer_cast<Conversion>(shared_from_this())));
}

boost::asio::awaitable<void> Conversion::Run(std::shared_ptr<Conversion> self) {
  try {
    if (auto asked = co_await self->Ask(); !asked) self->answer_ = std::move(asked);
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
boost::asio::awaitable<api::Result<void>> Conversion::Ask() {
  deadline_ = Clock::now() + patience_;
  if (auto opened = co_await Open(deadline_); !opened) co_return opened;
  asked_ = true;
  deadline_ = Clock::now() + patience_;
  api::ipc::ConvertModel request = request_;
  request.files = FilesOf(0);
  Send(request);
  while (!answer_ && !over() && !stop_asked() && Clock::now() < deadline_) {
    co_await changed().Wait(deadline_);
  }
  if (answer_) co_return api::Result<void>();
  if (stop_asked()) co_return api::Fail(api::ErrorCode::kUnavailable, "the server is shutting down");
  if (over()) {
    const std::string cause = co_await Cause();
    if (answer_) co_return api::Result<void>();
    co_return api::Fail(api::ErrorCode::kRunnerDied,
                        "the model runner ended while it converted the model: " + cause);
  }
  co_return api::Fail(api::ErrorCode::kUnavailable,
                      fmt::format("converting the model made no progress for {} s",
                                  std::chrono::duration<double>(patience_).count()));
}

boost::asio::awaitable<api::Result<std::optional<float>>> Conversion::Next(std::shared_ptr<Conversion> self) {
  while (true) {
    if (self->fraction_ > self->told_) co_return self->told_ = self->fraction_;
    if (self->answer_ && !*self->answer_) co_return std::unexpected(self->answer_->error());
    if (self->answer_) co_return std::nullopt;
    const bool waited = co_await self->changed().Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client went away");
  }
}

api::Result<void> Conversion::OnRunnerMessage(api::ipc::ToDaemon message) {
  if (const auto* progress = std::get_if<api::ipc::LoadProgress>(&message); progress && asked_) {
    if (progress->fraction > fraction_) {
      fraction_ = progress->fraction;
      deadline_ = Clock::now() + patience_;
      changed().Notify();
    }
    return {};
  }
  if (const auto* converted = std::get_if<api::ipc::Converted>(&message); converted && asked_ && !answer_) {
    answer_ = converted->error ? api::Result<void>(std::unexpected(*converted->error)) : api::Result<void>();
    changed().Notify();
    return {};
  }
  if (std::holds_alternative<api::ipc::Beat>(message)) return {};
  return api::Fail(api::ErrorCode::kRunnerDied, "a frame that nobody asked for");
}

}  // namespace quire::scheduler
