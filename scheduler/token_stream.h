// One request's events as the front end consumes them.
#pragma once

#include <chrono>
#include <memory>

#include "api/base/ids.h"
#include "scheduler/dispatcher.h"
#include "scheduler/model_runner.h"

namespace quire::scheduler {

// Who carries requests from runner to runner.
class RequestCarrier {
 public:
  virtual ~RequestCarrier() = default;
  virtual void OnClientDisconnected(api::RequestId id) = 0;  // nothing happens if the request has ended
  virtual void OnDeltasConsumed(api::RequestId id, int32_t deltas) = 0;
};

// I/O thread only.
class RunnerTokenStream final : public TokenStream {
 public:
  RunnerTokenStream(std::weak_ptr<RequestCarrier> carrier, api::RequestId id,
                    std::shared_ptr<EventStream> stream, std::chrono::nanoseconds load_duration);
  ~RunnerTokenStream() override;

  Awaitable<api::Event> Next() override;
  std::chrono::nanoseconds load_duration() const override { return load_duration_; }
  int runner_pid() const override { return stream_->runner_pid; }

 private:
  static Awaitable<api::Event> Receive(std::weak_ptr<RequestCarrier> carrier, api::RequestId id,
                                       std::shared_ptr<EventStream> stream);

  const std::weak_ptr<RequestCarrier> carrier_;
  const api::RequestId id_;
  const std::shared_ptr<EventStream> stream_;
  const std::chrono::nanoseconds load_duration_;
};

}  // namespace quire::scheduler
