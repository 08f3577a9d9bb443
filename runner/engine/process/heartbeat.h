// What a runner says of itself every second.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "api/base/ids.h"
#include "api/ipc/messages.h"

namespace quire::runner::engine {

struct EngineStats;
class PreparationQueue;

// I/O thread. The stats and the queue outlive it.
class HeartbeatSource {
 public:
  // `on_stuck`: once for each request whose preparation is stuck.
  HeartbeatSource(const EngineStats& engine_stats, PreparationQueue& prompts,
                  std::function<void(api::RequestId)> on_stuck)
      : engine_stats_(engine_stats), prompts_(prompts), on_stuck_(std::move(on_stuck)) {}

  // A runner that is stuck in preparing a prompt reports no progress, so that the daemon replaces it.
  // `preparation_max`: the CPU time of the longest preparation, by the model.
  api::ipc::Heartbeat Next(std::chrono::nanoseconds preparation_max);

 private:
  const EngineStats& engine_stats_;
  PreparationQueue& prompts_;
  const std::function<void(api::RequestId)> on_stuck_;
  std::vector<api::RequestId> stuck_;  // at the last one
  uint64_t progress_ = 0;              // as it said
};

}  // namespace quire::runner::engine
