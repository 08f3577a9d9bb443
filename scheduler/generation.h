// One request's events as the front end takes them.
#pragma once

#include <chrono>
#include <memory>

#include "api/ids.h"
#include "scheduler/dispatcher.h"
#include "scheduler/model_runner.h"

namespace quire::scheduler {

// I/O thread only. Keeps the runner's object, not its process, alive.
class RunnerGeneration final : public Generation {
 public:
  RunnerGeneration(std::shared_ptr<ModelRunner> runner, api::RequestId id,
                   std::shared_ptr<EventStream> stream, std::chrono::nanoseconds load_duration);
  ~RunnerGeneration() override;

  Awaitable<api::Event> Next() override;
  std::chrono::nanoseconds load_duration() const override { return load_duration_; }
  int runner_pid() const override { return runner_->pid(); }

 private:
  static Awaitable<api::Event> Take(std::shared_ptr<ModelRunner> runner, api::RequestId id,
                                    std::shared_ptr<EventStream> stream);

  const std::shared_ptr<ModelRunner> runner_;
  const api::RequestId id_;
  const std::shared_ptr<EventStream> stream_;
  const std::chrono::nanoseconds load_duration_;
};

}  // namespace quire::scheduler
