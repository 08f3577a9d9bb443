// The scheduler as the front end sees it: submit a request for a model, get its events; load, list, unload.
//
// Everything here runs on the daemon's one I/O thread (the executor given to the constructor). Nothing
// blocks: runners are subprocesses spoken to over asynchronous sockets, and models' files are opened by
// threads of their own. A runner that dies, or hangs, is replaced and its requests continue in the next one;
// only a request that kills one runner after the other fails.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "scheduler/keep_alive_claims.h"
#include "scheduler/preparation_room.h"
#include "scheduler/queue_places.h"
#include "scheduler/runner_program.h"

namespace quire::scheduler {

class SnapshotTier;

template <class T>
using Awaitable = boost::asio::awaitable<T>;

// A model as the store resolved it. Two specs with the same key share one runner.
struct ModelSpec {
  std::string key;             // the manifest's digest: another file means another runner
  std::string name;            // shortest full name, for lists and logs ("quire-demo:latest")
  std::filesystem::path path;  // weights: GGUF file or Hugging Face directory
  // Takes precedence over the weights' own chat template; null = none. All requests of a model share it.
  std::shared_ptr<const std::string> go_template = {};
  api::ipc::PromptNames names = {};           // of the manifest
  std::filesystem::path draft_path = {};      // a draft model's weights; empty = none
  std::filesystem::path projector_path = {};  // its vision tower's (mmproj), likewise
};

struct Limits {
  int32_t loaded_models_max = 3;
  int32_t queue_max = 512;      // requests waiting, all models together
  int32_t model_queue_max = 0;  // of one model; < 1: no limit of its own
  std::chrono::nanoseconds drain_limit =
      std::chrono::seconds(10);  // of a model that makes room; <= 0 = no limit
  std::chrono::nanoseconds queue_timeout = std::chrono::nanoseconds::zero();  // of waiting; <= 0 = no limit
  int32_t default_num_ctx = 0;  // < 1: the trained length, cut to what the caches hold of one sequence
  api::ipc::RunnerSettings runner_settings = {};
  std::vector<std::string> runner_arguments =
      {};                    // of every runner's command line: what it has to know at its start
  int64_t memory_bytes = 0;  // of all runners together; < 1: no limit
  std::chrono::nanoseconds load_timeout = std::chrono::minutes(5);  // <= 0 = never
  std::chrono::nanoseconds stall_timeout =
      std::chrono::seconds(8);  // without a frame or progress; <= 0 = never
  // How long a quarantined request is on probation before the next one is admitted.
  std::chrono::nanoseconds probation_time = std::chrono::seconds(2);
  std::chrono::nanoseconds default_keep_alive = std::chrono::minutes(5);
  std::chrono::nanoseconds inspect_timeout = std::chrono::minutes(1);
  std::chrono::nanoseconds convert_patience = std::chrono::minutes(2);  // without progress
  std::chrono::nanoseconds stop_grace = std::chrono::seconds(5);  // from the Shutdown message until SIGKILL
  std::shared_ptr<SnapshotTier> snapshots = {};                   // of all runners; null = none
  size_t link_bytes_max = 2 * api::ipc::kFrameBytesMax;  // of requests that wait to be sent to one runner
  PreparationLimits preparation = {};                    // of large requests that one runner has not prepared
};

struct LoadedModel {
  ModelSpec spec;                 // of the last request
  std::string loaded_as;          // its name when it was loaded
  api::ipc::ModelInfo info;       // num_ctx: the default
  int32_t num_ctx = 0;            // context of the last request or, before one, the default; tokens
  int32_t running = 0;            // requests in flight
  int64_t size_bytes = 0;         // weights and caches
  int64_t memory_bytes = 0;       // granted to its runner; includes scratch memory and tokenizer
  api::ipc::Heartbeat heartbeat;  // the runner's last heartbeat
  std::chrono::nanoseconds load_time{};
  std::chrono::nanoseconds since_progress{};  // of the runner
  int runner_pid = 0;
  std::optional<std::chrono::system_clock::time_point> expires_at;  // absent = never
};

// What a client may see of the last request, which may be another one's: an admin all.
inline int32_t ContextShownTo(bool admin, const LoadedModel& model) {
  return admin ? model.num_ctx : model.info.num_ctx;
}
inline const std::string& NameShownTo(bool admin, const LoadedModel& model) {
  return admin || model.loaded_as.empty() ? model.spec.name : model.loaded_as;
}

// A model whose runner is not ready yet.
struct LoadingModel {
  ModelSpec spec;      // its key and name
  float fraction = 0;  // of the load, 0 to 1
  std::string stage;   // "quantizing weights"; empty: the runner starts
  int runner_pid = 0;
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

// One request's event stream. Owned by the coroutine that serves the client; destroying it cancels the
// request in the runner if it has not ended. I/O thread only.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // Waits for the next event. After Finished or Failed it must not be called again. Cancellation of the
  // awaiting coroutine is honored (the client disconnected): it then throws operation_aborted.
  virtual Awaitable<api::Event> Next() = 0;
  virtual std::chrono::nanoseconds load_duration()
      const = 0;  // time this request waited for its model to load
  virtual int runner_pid() const = 0;
};

// A running conversion of a model. Destroying it stops the work; the owner removes what was written by then.
// It must not outlive the dispatcher's draining. I/O thread only.
class ConversionJob {
 public:
  virtual ~ConversionJob() = default;
  // The fraction done, each time it has grown, then nothing: the file is there. Errors end it: the model's
  // own, kUnavailable, kRunnerDied; kCancelled when the awaiting coroutine is canceled.
  virtual Awaitable<api::Result<std::optional<float>>> Next() = 0;
};

class Dispatcher {
 public:
  Dispatcher(const boost::asio::any_io_executor& executor, RunnerProgram runner_program,
             const Limits& limits);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Loads the model if needed (one load for all waiting requests) and queues the request. Errors:
  // kOverloaded, kBadModel, kNotFound (no such file), kUnavailable (draining, load timeout, or the runner
  // could not be started). Events follow on the TokenStream.
  Awaitable<api::Result<std::unique_ptr<TokenStream>>> Submit(ModelSpec spec, api::Request request,
                                                              std::optional<KeepAliveClaim> keep_alive);
  // Loads without a request; restarts the keep-alive timer. The value is the time the load took.
  Awaitable<api::Result<std::chrono::nanoseconds>> Load(ModelSpec spec,
                                                        std::optional<KeepAliveClaim> keep_alive,
                                                        std::string party = {});
  // Unloads once its running requests have ended; returns at once. Unknown keys are ignored.
  void Unload(const std::string& key);
  // The party (api::Client::Party()) needs the model no longer: the same while no other one does
  // (KeepAliveClaims).
  void EndClaim(const std::string& key, const std::string& party);

  // Runs a short-lived runner that parses the file and describes it; the daemon itself never parses model
  // files. Parties (api::Client) take turns, and one of them has half of the runners at most.
  Awaitable<api::Result<api::ipc::Inspected>> Inspect(api::ipc::InspectModel request, std::string party = {});
  // Starts a short-lived runner that converts a model. One conversion runs at a time; this waits for the turn
  // of its party. `kept` is held until the runner is reaped: whatever it writes into. kOverloaded,
  // kUnavailable (draining).
  Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Convert(api::ipc::ConvertModel request,
                                                                 std::shared_ptr<const void> kept,
                                                                 std::string party = {});

  std::vector<LoadedModel> Loaded() const;    // longest-lived first
  std::vector<LoadingModel> Loading() const;  // by key
  // Has the engines of all loaded models asked what they do. Returns once all have answered, at `until` at
  // the latest; Engines() shows what has come.
  Awaitable<void> InspectEngines(std::chrono::steady_clock::time_point until);
  std::vector<EngineView> Engines() const;
  // `question.known_version` holds for `known_pid` only. kNotFound: the model is not loaded. kUnavailable: it
  // was unloaded meanwhile.
  Awaitable<api::Result<CacheView>> InspectCache(std::string key, api::ipc::InspectCache question,
                                                 int known_pid);
  Counters counters() const;
  // At `now` a runner has sent no frame or made no progress for so long that it should have been replaced.
  bool Stuck(std::chrono::steady_clock::time_point now) const;
  // The error that Submit() would return at once for any request of the party for this model
  // (ModelSpec::key); nothing while one may wait.
  std::optional<api::Error> RefusalFor(const std::string& key, const std::string& party,
                                       AnswerLength length = AnswerLength::kAny) const;
  int64_t memory_limit() const;  // bytes of all runners together; 0 = none

  // Rejects new requests, waits for the running ones until `deadline`, then stops and reaps every runner.
  Awaitable<void> Drain(std::chrono::steady_clock::time_point deadline);

  // Empty if all invariants hold, else the first that does not. For tests, between two handlers of the
  // executor.
  std::string CheckInvariants() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace quire::scheduler
