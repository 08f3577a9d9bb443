// The scheduler as the front end sees it: submit a request for a model, get its events; load, list, unload.
//
// Everything here runs on the daemon's one I/O thread (the executor given to the constructor). Nothing
// blocks: runners are subprocesses spoken to over asynchronous sockets, and models' files are opened by
// threads of their own. A runner that dies, or hangs, is replaced and its requests continue in the next one;
// only a request that kills one runner after the other fails.
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "scheduler/backend.h"
#include "scheduler/plan.h"
#include "scheduler/runner_program.h"

namespace quire::scheduler {

class OneOffJobs;
class PlanExecutor;
class PoisonGuard;
class SnapshotTier;
struct RunnerHost;

// The limits of what the scheduler decides (SchedulerOptions), and of what runs.
struct Limits : SchedulerOptions {
  int32_t default_num_ctx = 0;  // < 1: the trained length, cut to what the caches hold of one sequence
  api::ipc::RunnerSettings runner_settings = {};
  std::vector<std::string> runner_arguments =
      {};  // of every runner's command line: what it has to know at its start
  std::chrono::nanoseconds load_timeout = std::chrono::minutes(5);  // <= 0 = never
  std::chrono::nanoseconds stall_timeout =
      std::chrono::seconds(8);  // without a frame or progress; <= 0 = never
  std::chrono::nanoseconds inspect_timeout = std::chrono::minutes(1);
  std::chrono::nanoseconds convert_patience = std::chrono::minutes(2);  // without progress
  std::chrono::nanoseconds stop_grace = std::chrono::seconds(5);  // from the Shutdown message until SIGKILL
  std::shared_ptr<SnapshotTier> snapshots = {};                   // of all runners; null = none
  size_t link_bytes_max = 2 * api::ipc::kFrameBytesMax;  // of requests that wait to be sent to one runner

  int64_t memory_limit() const { return std::max<int64_t>(memory_bytes, 0); }
  // The operator's, with the memory that there is.
  api::ipc::RunnerSettings SettingsForRunner() const {
    api::ipc::RunnerSettings settings = runner_settings;
    settings.memory_bytes = memory_limit();
    return settings;
  }
};

// What a loaded model's engine does, as it said last.
struct EngineView {
  ModelSpec spec;
  int runner_pid = 0;
  api::ipc::EngineInspected engine;
  struct Origin {
    std::string exchange;  // api::Client::exchange; empty: the request has ended since
    int32_t weight = 1;
  };
  std::vector<Origin> owners;  // of engine.sequences
};
// The prefixes that a loaded model's caches hold.
struct CacheView {
  int runner_pid = 0;  // versions of different runners do not compare
  api::ipc::CacheInspected cache;
};

// Counters since the start.
struct Counters {
  std::map<std::string, uint64_t> evictions;  // models unloaded, by reason
  std::map<std::string, uint64_t> restarts;   // runners that died, by reason
};

class Dispatcher final : public Backend {
 public:
  Dispatcher(const boost::asio::any_io_executor& executor, RunnerProgram runner_program,
             const Limits& limits);
  ~Dispatcher() override;
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  Awaitable<api::Result<std::unique_ptr<TokenStream>>> Submit(
      ModelSpec spec, api::Request request, std::optional<KeepAliveClaim> keep_alive) override;
  Awaitable<api::Result<std::chrono::nanoseconds>> Load(ModelSpec spec,
                                                        std::optional<KeepAliveClaim> keep_alive,
                                                        fair::PartyId party = {}) override;
  void Unload(const std::string& key) noexcept override;
  void EndClaim(const std::string& key, const fair::PartyId& party) noexcept override;

  Awaitable<api::Result<api::ipc::Inspected>> Inspect(api::ipc::InspectModel request,
                                                      fair::PartyId party = {}) override;
  Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Convert(api::ipc::ConvertModel request,
                                                                 std::shared_ptr<const void> kept,
                                                                 fair::PartyId party = {}) override;
  std::vector<LoadedModel> Loaded() const override;
  std::vector<LoadingModel> Loading() const override;
  std::optional<api::Error> RefusalFor(const std::string& key, const fair::PartyId& party) const override;
  int64_t memory_limit() const override { return memory_limit_; }

  // Has the engines of all loaded models asked what they do. Returns once all have answered, at `until` at
  // the latest; Engines() shows what has come.
  Awaitable<void> InspectEngines(std::chrono::steady_clock::time_point until);
  std::vector<EngineView> Engines() const;
  // `question.known_version` holds for `known_pid` only. kNotFound: the model is not loaded. kUnavailable: it
  // was unloaded meanwhile.
  Awaitable<api::Result<CacheView>> InspectCache(const std::string& key, api::ipc::InspectCache question,
                                                 int known_pid);
  Counters counters() const;
  // At `now` a runner has sent no frame or made no progress for so long that it should have been replaced.
  bool Stuck(std::chrono::steady_clock::time_point now) const;

  // Rejects new requests, waits for the running ones until `deadline`, then stops and reaps every runner.
  Awaitable<void> Drain(std::chrono::steady_clock::time_point deadline);

  // Empty if all invariants hold, else the first that does not. For tests, between two handlers of the
  // executor.
  std::string CheckInvariants() const;

 private:
  const std::unique_ptr<const RunnerHost> host_;
  // Clients' coroutines hold them, too.
  const std::shared_ptr<PoisonGuard> poison_;
  const std::shared_ptr<PlanExecutor> plans_;
  const std::shared_ptr<OneOffJobs> jobs_;
  const int64_t memory_limit_;
};

}  // namespace quire::scheduler
