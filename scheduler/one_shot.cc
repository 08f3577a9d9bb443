#include "scheduler/one_shot.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace quire::scheduler {

using Clock = std::chrono::steady_clock;

OneShot::OneShot(RunnerHost host, std::string name, const std::filesystem::path& model,
                 std::chrono::nanoseconds patience, Words words)
    : RunnerSession(std::move(host), std::move(name), {model}), patience_(patience), words_(words) {}

void OneShot::Start() {
  Gate gate = host().gate;
  gate.Start(Run(std::static_pointer_cast<OneShot>(shared_from_this())));
}

void OneShot::Progressed() {
  deadline_ = Clock::now() + patience_;
  changed().Notify();
}

boost::asio::awaitable<void> OneShot::Run(std::shared_ptr<OneShot> self) {
  try {
    auto answered = co_await self->AwaitAnswer();
    if (!answered) self->Fail(std::move(answered).error());
    self->changed().Notify();
    co_await self->Shut(/*at_once=*/true);
  } catch (const std::exception& e) {
    self->Fail({api::ErrorCode::kUnavailable, std::string("the model runner failed: ") + e.what()});
    self->changed().Notify();
    self->Kill();
  }
}

boost::asio::awaitable<api::Result<void>> OneShot::AwaitAnswer() {
  deadline_ = Clock::now() + patience_;
  auto opened = co_await Open(deadline_);
  if (!opened) co_return opened;
  asked_ = true;
  deadline_ = Clock::now() + patience_;
  Ask();
  while (!answered() && !over() && !stop_asked() && Clock::now() < deadline_) {
    co_await changed().Wait(deadline_);
  }
  if (answered()) co_return api::Result<void>();
  if (stop_asked()) co_return api::Fail(api::ErrorCode::kUnavailable, "the server is shutting down");
  if (over()) {
    const std::string cause = co_await Cause();
    if (answered()) co_return api::Result<void>();
    co_return api::Fail(api::ErrorCode::kRunnerDied,
                        fmt::format("the model runner ended while it {}: {}", words_.ended_while, cause));
  }
  co_return api::Fail(
      api::ErrorCode::kUnavailable,
      fmt::format("{} {} s", words_.too_long, std::chrono::duration<double>(patience_).count()));
}

}  // namespace quire::scheduler
