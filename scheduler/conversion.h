// A short-lived runner that converts a model, so that the daemon never touches weights.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "scheduler/one_off_job.h"

namespace quire::scheduler {

class Conversion : public OneOffJob {
 public:
  // `kept` is held until the runner is reaped. `patience`: the longest time between two steps forward.
  Conversion(RunnerHost host, api::ipc::ConvertModel request, std::shared_ptr<const void> kept,
             std::chrono::nanoseconds patience);

  // As ConversionJob::Next. REQUIRES: Start() was called.
  static boost::asio::awaitable<api::Result<std::optional<float>>> Next(std::shared_ptr<Conversion> self);

 private:
  void SendRequest() override;
  bool answered() const override { return answer_.has_value(); }
  void Fail(api::Error error) override { answer_ = std::unexpected(std::move(error)); }
  api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) override;

  api::ipc::ConvertModel request_;
  const std::shared_ptr<const void> kept_;
  float fraction_ = 0;  // done, as the runner says
  float reported_ = 0;  // of it, by Next()
  std::optional<api::Result<void>> answer_;
};

}  // namespace quire::scheduler
