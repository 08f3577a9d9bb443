// A runner that loads a model, and then serves it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "runner/engine/process/host_state.h"
#include "runner/engine/process/link.h"
#include "runner/engine/process/preparation.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/steps/engine.h"

namespace quire::runner::engine {

// On the thread that becomes the engine's.
class RunnerLoad {
 public:
  // All outlive it.
  RunnerLoad(HostState& state, Link& link, const api::ipc::LoadModel& request);

  // Returns when the engine stops; an error is why the model is not served.
  api::Result<void> Serve();

 private:
  api::Result<OpenedModel> OpenConfined();
  api::Result<void> ServeDecoder(OpenedModel opened);
  api::Result<void> ServeEncoder(OpenedModel opened);
  // Sends the estimate, waits until the daemon has granted memory, and reads the weights.
  api::Result<LoadedModel> Finish(OpenedModel opened, const api::ipc::MemoryEstimate& estimate);
  api::ipc::MemoryEstimate EstimateDecoder(const OpenedModel& opened) const;
  Preparation::Receivers Receivers() const;
  // Closes what only loading needs, and says that the model is loaded.
  api::Result<void> EndLoading(const api::ipc::ModelInfo& info);

  HostState& state_;
  Link& link_;
  const api::ipc::LoadModel& request_;
  const Clock::time_point begin_ = Clock::now();
  const Progress progress_;
  LoadOptions options_;
  EngineLimits limits_;
};

}  // namespace quire::runner::engine
