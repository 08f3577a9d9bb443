// How much of a model's weights is laid out in memory: all, where that fits.
#pragma once

#include <cstdint>
#include <memory>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"

namespace quire::runner::engine {

struct EngineLimits;

// What a runner has beside its model: a draft model's weights and scratch memory, a vision tower's (or null).
int64_t BytesBeside(const DraftParts& draft, const models::VisionTower* tower, const EngineLimits& limits);

// Bytes of memory.
struct WeightsRoom {
  int64_t process = 0;      // what this process has, and keeps
  int64_t cache_bytes = 0;  // asked for the caches; 0 = auto
  int64_t requested = 0;    // for all weights of the model; 0 = auto
  int64_t available = 0;    // that it may ever have; 0 = unknown
};
WeightsRoom RoomFor(const DraftParts& draft, const models::VisionTower* tower, const EngineLimits& limits,
                    const api::ipc::RunnerSettings& settings);

// The panel_bytes_max that a load of `files` needs. kNoPanelLimit where `whole`, the metadata-only model
// without a limit, fits: in `requested`, and beside the smallest caches in `available`. A model that does not
// fit leaves an eighth of what is available to caches, at least their smallest size. Zero where even the rest
// does not fit.
api::Result<int64_t> ChoosePanelBytes(const std::shared_ptr<const weights::ModelFiles>& files,
                                      const LoadOptions& options, const models::Model& whole,
                                      const EngineLimits& limits, const WeightsRoom& room);

// Sets options.panel_bytes_max for these settings, and what was opened with it.
api::Result<void> FitWeights(OpenedModel& opened, const EngineLimits& limits,
                             const api::ipc::RunnerSettings& settings, LoadOptions& options);

}  // namespace quire::runner::engine
