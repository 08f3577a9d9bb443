// A short-lived runner that writes a model in another form, so that the daemon never touches weights.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "api/error.h"
#include "api/ipc.h"
#include "scheduler/runner_session.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr. The runner is killed and reaped in the background once it has
// answered, has made no progress for too long, or Stop() was called.
class Conversion : public RunnerSession {
 public:
  // `kept` is held until the runner is reaped. `patience`: the longest time between two steps forward.
  Conversion(RunnerHost host, api::ipc::ConvertModel request, std::shared_ptr<const void> kept,
             std::chrono::nanoseconds patience);

  void Start();  // REQUIRES: held by shared_ptr
  // As Converting::Next. REQUIRES: Start() was called.
  static boost::asio::awaitable<api::Result<std::optional<float>>> Next(std::shared_ptr<Conversion> self);

 private:
  static boost::asio::awaitable<void> Run(std::shared_ptr<Conversion> self);
  boost::asio::awaitable<api::Result<void>> Ask();
  api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) override;

  const api::ipc::ConvertModel request_;
  const std::shared_ptr<const void> kept_;
  const std::chrono::nanoseconds patience_;
  bool asked_ = false;
  float fraction_ = 0;  // done, as the runner says
  float told_ = 0;      // of it, by Next()
  Time deadline_{};
  std::optional<api::Result<void>> answer_;
};

}  // namespace quire::scheduler
