#include "runner/engine/process/heartbeat.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runner/engine/process/preparation_queue.h"
#include "runner/engine/steps/engine_stats.h"

namespace quire::runner::engine {
namespace {

// CPU time that a preparation may go on for after it should have been stopped.
constexpr auto kPatience = std::chrono::seconds(5);

}  // namespace

api::ipc::Heartbeat HeartbeatSource::Next(std::chrono::nanoseconds preparation_max) {
  const auto value = [](const auto& figure) { return figure.load(std::memory_order_relaxed); };
  std::vector<api::RequestId> stuck = prompts_.FindStuck(preparation_max + kPatience);
  for (const api::RequestId id : stuck) {
    if (std::ranges::find(stuck_, id) == stuck_.end()) on_stuck_(id);
  }
  stuck_ = std::move(stuck);
  if (stuck_.empty()) progress_ = value(engine_stats_.progress);
  return {.progress = progress_,
          .steps = value(engine_stats_.steps),
          .running = value(engine_stats_.running),
          .waiting = value(engine_stats_.waiting),
          .cache_bytes_used = value(engine_stats_.cache_bytes_used),
          .prefix_snapshots = value(engine_stats_.prefix_snapshots),
          .prefix_bytes = value(engine_stats_.prefix_bytes),
          .prefix_evictions = value(engine_stats_.prefix_evictions)};
}

}  // namespace quire::runner::engine
