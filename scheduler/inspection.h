// A short-lived runner that describes a model file, so that the daemon never parses one.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "api/error.h"
#include "api/ipc.h"
#include "scheduler/runner_session.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr. The runner is killed and reaped in the background once there is an
// answer, the time is up, or Stop() was called.
class Inspection : public RunnerSession {
 public:
  Inspection(RunnerHost host, api::ipc::InspectModel request, std::chrono::nanoseconds timeout);

  void Start();  // REQUIRES: held by shared_ptr
  // Waits for the answer. An error of the file itself is in Inspected::error and becomes this result's error.
  // Returns kCancelled when the awaiting coroutine is cancelled. REQUIRES: Start() was called.
  static boost::asio::awaitable<api::Result<api::ipc::Inspected>> Answer(std::shared_ptr<Inspection> self);

 private:
  static boost::asio::awaitable<void> Run(std::shared_ptr<Inspection> self);
  boost::asio::awaitable<api::Result<void>> Ask();
  api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) override;

  const api::ipc::InspectModel request_;
  const std::chrono::nanoseconds timeout_;
  bool asked_ = false;
  std::optional<api::Result<api::ipc::Inspected>> answer_;
};

}  // namespace quire::scheduler
