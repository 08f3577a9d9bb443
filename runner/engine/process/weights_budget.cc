#include "runner/engine/process/weights_budget.h"

#include <algorithm>

#include "runner/engine/process/machine_memory.h"
#include "runner/engine/process/memory_estimate.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/steps/engine_state.h"

namespace quire::runner::engine {
namespace {

constexpr int64_t kCacheShare = 8;
// The share of what is available that stays free: the process grows a little until the daemon decides.
constexpr int64_t kReserveShare = 64;

// Memory that a model may ever have: of all models together, and of the machine. 0 = unknown.
int64_t AvailableBytes(const api::ipc::RunnerSettings& settings) {
  const int64_t machine = MemoryLimitBytes();
  if (settings.memory_bytes <= 0) return machine;
  return machine > 0 ? std::min(machine, settings.memory_bytes) : settings.memory_bytes;
}

// What the model's weights may take; kNoPanelLimit: as much as they take.
int64_t BytesForWeights(const models::Model& whole, const EngineLimits& limits, const WeightsRoom& room) {
  int64_t bytes = room.requested > 0 ? room.requested : weights::kNoPanelLimit;
  if (room.available <= 0) return bytes;
  const int64_t scratch = room.process + ScratchBytes(whole, limits);
  const CacheSizing caches =
      ChooseCacheSize(whole.cache_layout(), whole.context_length(), room.cache_bytes, /*available=*/0);
  const auto least = static_cast<int64_t>(caches.min_bytes);
  if (std::min(whole.resident_bytes(), bytes) + scratch + least <= room.available) return bytes;
  return std::min(bytes, room.available - scratch - std::max(least, room.available / kCacheShare) -
                             room.available / kReserveShare);
}

}  // namespace

int64_t BytesBeside(const DraftParts& draft, const models::VisionTower* tower, const EngineLimits& limits) {
  return draft.resident_bytes() + (draft.model ? ScratchBytes(*draft.model, limits) : 0) +
         (tower != nullptr ? ImageEncoderBytes(*tower) : 0);
}

WeightsRoom RoomFor(const DraftParts& draft, const models::VisionTower* tower, const EngineLimits& limits,
                    const api::ipc::RunnerSettings& settings) {
  return {.process = ResidentBytes() + BytesBeside(draft, tower, limits),
          .cache_bytes = settings.cache_bytes,
          .requested = settings.weights_budget,
          .available = AvailableBytes(settings)};
}

api::Result<int64_t> ChoosePanelBytes(const std::shared_ptr<const weights::ModelFiles>& files,
                                      const LoadOptions& options, const models::Model& whole,
                                      const EngineLimits& limits, const WeightsRoom& room) {
  const int64_t bytes = BytesForWeights(whole, limits, room);
  if (whole.resident_bytes() <= bytes) return weights::kNoPanelLimit;
  // What is in memory in any case: norms, biases, weights that no file has as they are.
  LoadOptions streamed = options;
  streamed.panel_bytes_max = 0;
  const auto least = LoadMetadataModel(files, streamed);
  if (!least) return std::unexpected(least.error());
  // A small model beside many threads, of which what they fill takes more than the weights.
  if (room.requested <= 0 && (*least)->resident_bytes() >= whole.resident_bytes())
    return weights::kNoPanelLimit;
  return std::max<int64_t>(bytes - (*least)->resident_bytes(), 0);
}

api::Result<void> FitWeights(OpenedModel& opened, const EngineLimits& limits,
                             const api::ipc::RunnerSettings& settings, LoadOptions& options) {
  const auto panels =
      ChoosePanelBytes(opened.loaded.files, options, *opened.metadata_model, limits,
                       RoomFor(opened.metadata_draft, opened.metadata_tower.get(), limits, settings));
  if (!panels) return std::unexpected(panels.error());
  if (*panels == weights::kNoPanelLimit) return {};
  options.panel_bytes_max = *panels;
  return ReloadMetadata(opened, options);
}

}  // namespace quire::runner::engine
