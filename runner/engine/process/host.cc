#include "runner/engine/process/host.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <variant>

#include "runner/engine/process/heartbeat.h"
#include "runner/engine/process/host_state.h"
#include "runner/engine/process/link.h"
#include "runner/engine/process/model_jobs.h"
#include "runner/engine/process/runner_load.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {
namespace {

namespace ipc = api::ipc;

constexpr int kExitBadLink = 2;

// I/O thread. The engine is not asked for what the caller has.
void InspectCache(HostState& state, Link& link, ipc::InspectCache question) {
  const uint64_t version = state.engine_stats.prefix_changes.load(std::memory_order_relaxed);
  if (version != 0 && version == question.known_version) {
    return link.Send(ipc::CacheInspected{.id = question.id, .version = version, .unchanged = true});
  }
  const auto answer = [&link](ipc::CacheInspected inspected) { link.Send(std::move(inspected)); };
  state.engine.Post(CacheQuestion{std::move(question), answer});
}

// I/O thread.
void Dispatch(HostState& state, Link& link, ipc::ToRunner message) {
  std::visit(
      [&]<class T>(T& value) {
        if constexpr (std::is_same_v<T, ipc::LoadModel> || std::is_same_v<T, ipc::InspectModel> ||
                      std::is_same_v<T, ipc::ConvertModel>) {
          // This thread started before: the one that reads the model restricts itself, and reports.
          static_cast<void>(RestrictThread());
          state.setup.Post(std::move(value));
        } else if constexpr (std::is_same_v<T, ipc::Submit>) {
          if (!value.request.prompt_only) state.engine.Post(Arrived{value.id});
          state.prompts.Push({std::move(value), Clock::now()});
        } else if constexpr (std::is_same_v<T, ipc::Shutdown>) {
          if (!state.flushes) std::_Exit(EXIT_SUCCESS);
          state.engine.Post(Stop{});
        } else if constexpr (std::is_same_v<T, ipc::LoadApproved>) {
          state.load_approved.Post(value);
        } else if constexpr (std::is_same_v<T, ipc::InspectEngine>) {
          state.engine.Post(
              EngineQuestion{value, [&link](ipc::EngineInspected answer) { link.Send(std::move(answer)); }});
        } else if constexpr (std::is_same_v<T, ipc::InspectCache>) {
          InspectCache(state, link, std::move(value));
        } else {
          if constexpr (std::is_same_v<T, ipc::Cancel>) state.prompts.Cancel(value.id);
          state.engine.Post(value);
        }
      },
      message);
}

// I/O thread. A request whose preparation is stuck fails alone; those beside it go on in the next runner.
ipc::ToDaemon NextHeartbeat(HostState& state, Link& link) {
  static HeartbeatSource heartbeats(state.engine_stats, state.prompts, [&state, &link](api::RequestId id) {
    state.prompts.Cancel(id);
    state.engine.Post(ipc::Cancel{id});
    link.Send(
        ipc::RequestEvent{id, api::Failed{{api::ErrorCode::kInternal,
                                           "preparing the request does not end; its runner is replaced"}}});
  });
  return heartbeats.Next(state.preparation_max.load());
}

// I/O thread.
void EndProcess(const api::Result<void>& reason) {
  if (reason) std::_Exit(EXIT_SUCCESS);
  LogLine(reason.error().message);
  std::_Exit(kExitBadLink);
}

}  // namespace

int RunRunner(int fd, int snapshot_fd, bool require_sandbox) {
  HostState state{.snapshot_fd = snapshot_fd, .require_sandbox = require_sandbox};
  Link link(
      fd, ipc::Hello{.pid = static_cast<int32_t>(getpid())},
      {.on_message = [&state, &link](ipc::ToRunner message) { Dispatch(state, link, std::move(message)); },
       .heartbeat = [&state, &link] { return NextHeartbeat(state, link); },
       .on_end = EndProcess});
  while (true) {
    for (const auto& setup : state.setup.WaitAndPopAll(std::chrono::hours(1))) {
      if (const auto* load = std::get_if<ipc::LoadModel>(&setup)) {
        const auto served = RunnerLoad(state, link, *load).Serve();
        if (!served) link.Send(ipc::LoadFailed{served.error()});
      } else if (const auto* convert = std::get_if<ipc::ConvertModel>(&setup)) {
        link.Send(Convert(state, link, *convert));
      } else {
        link.Send(Inspect(state, std::get<ipc::InspectModel>(setup)));
      }
    }
  }
}

}  // namespace quire::runner::engine
