// State shared by the threads of a runner process. Lives as long as the process.
#pragma once

#include <atomic>
#include <chrono>
#include <variant>

#include "api/ipc/messages.h"
#include "runner/engine/process/preparation_queue.h"
#include "runner/engine/process/sandbox.h"
#include "runner/engine/steps/engine_input.h"
#include "runner/engine/steps/engine_stats.h"
#include "runner/engine/steps/mailbox.h"

namespace quire::runner::engine {

struct HostState {
  using Setup = std::variant<api::ipc::LoadModel, api::ipc::InspectModel, api::ipc::ConvertModel>;

  // As far as it is required.
  api::Result<void> CheckConfined() const { return require_sandbox ? CheckSandbox() : api::Result<void>(); }

  const int snapshot_fd;  // of the tier's socket; -1 = none
  const bool require_sandbox;
  Mailbox<Setup> setup = {};
  Mailbox<api::ipc::LoadApproved> load_approved = {};
  PreparationQueue prompts = {};
  Mailbox<Input> engine = {};
  EngineStats engine_stats = {};
  std::atomic<std::chrono::nanoseconds> preparation_max = {};  // of a request, by the model
  std::atomic<bool> flushes = false;                           // the engine runs, and has a tier
};

}  // namespace quire::runner::engine
