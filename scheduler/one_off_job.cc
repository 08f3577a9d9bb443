#include "scheduler/one_off_job.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "scheduler/clock.h"

namespace quire::scheduler {

OneOffJob::OneOffJob(RunnerHost host, std::string name, std::vector<std::filesystem::path> models,
                     std::chrono::nanoseconds patience, Words words)
    : RunnerSession(std::move(host), std::move(name), std::move(models)),
      patience_(patience),
      words_(words) {}

void OneOffJob::Start() {
  Gate gate = host().gate;
  gate.Start(Run(std::static_pointer_cast<OneOffJob>(shared_from_this())));
}

void OneOffJob::Progressed() {
  deadline_ = Clock::now() + patience_;
  changed().Notify();
}

boost::asio::awaitable<void> OneOffJob::Run(std::shared_ptr<OneOffJob> self) {
  try {
    auto answered = co_await self->AwaitAnswer();
    if (!answered) self->Fail(std::move(answered).error());
    self->changed().Notify();
    co_await self->Shut(/*at_once=*/true);
  } catch (const std::runtime_error& e) {  // its descriptors cannot be watched
    self->Fail({api::ErrorCode::kUnavailable, std::string("the model runner failed: ") + e.what()});
    self->changed().Notify();
    self->Kill();
  }
}

boost::asio::awaitable<api::Result<void>> OneOffJob::AwaitAnswer() {
  deadline_ = Clock::now() + patience_;
  auto opened = co_await Open(deadline_);
  if (!opened) co_return opened;
  request_sent_ = true;
  deadline_ = Clock::now() + patience_;
  SendRequest();
  while (!answered() && !over() && !stop_requested() && Clock::now() < deadline_) {
    co_await changed().Wait(deadline_);
  }
  if (answered()) co_return api::Result<void>();
  if (stop_requested()) co_return api::Fail(api::ErrorCode::kUnavailable, "the server is shutting down");
  if (over()) {
    const std::string cause = co_await Cause();
    if (answered()) co_return api::Result<void>();
    co_return api::Fail(api::ErrorCode::kRunnerDied,
                        fmt::format("the model runner died while {}: {}", words_.died_while, cause));
  }
  co_return api::Fail(
      api::ErrorCode::kUnavailable,
      fmt::format("{} {} s", words_.too_long, std::chrono::duration<double>(patience_).count()));
}

}  // namespace quire::scheduler
