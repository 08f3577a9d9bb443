// A short-lived runner that describes a model file, so that the daemon never parses one.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "scheduler/one_off_job.h"

namespace quire::scheduler {

class Inspection : public OneOffJob {
 public:
  Inspection(RunnerHost host, api::ipc::InspectModel request, std::chrono::nanoseconds timeout);

  // Waits for the answer. An error of the file itself is in Inspected::error and becomes this result's error.
  // Returns kCancelled when the awaiting coroutine is canceled. REQUIRES: Start() was called.
  static boost::asio::awaitable<api::Result<api::ipc::Inspected>> Answer(std::shared_ptr<Inspection> self);

 private:
  void SendRequest() override;
  bool answered() const override { return answer_.has_value(); }
  void Fail(api::Error error) override { answer_ = std::unexpected(std::move(error)); }
  api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) override;

  api::ipc::InspectModel request_;
  std::optional<api::Result<api::ipc::Inspected>> answer_;
};

}  // namespace quire::scheduler
