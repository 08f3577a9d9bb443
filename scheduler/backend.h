// The scheduler as handlers of requests see it: submit a request for a model, get its events; load, list,
// unload.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/fair/party.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "scheduler/keep_alive_claims.h"

namespace quire::scheduler {

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

// Implemented by the Dispatcher, and by tests. I/O thread only. Nothing blocks.
// The text of kOverloaded where the queue has no place for a request, or another party got its place.
inline constexpr const char* kBusy = "server busy, please try again.  maximum pending requests exceeded";

class Backend {
 public:
  virtual ~Backend() = default;
  // Loads the model if needed (one load for all waiting requests) and queues the request. Errors:
  // kOverloaded, kBadModel, kNotFound (no such file), kUnavailable (draining, load timeout, or the runner
  // could not be started). Events follow on the TokenStream.
  virtual Awaitable<api::Result<std::unique_ptr<TokenStream>>> Submit(
      ModelSpec spec, api::Request request, std::optional<KeepAliveClaim> keep_alive) = 0;
  // Loads without a request; restarts the keep-alive timer. The value is the time the load took.
  virtual Awaitable<api::Result<std::chrono::nanoseconds>> Load(ModelSpec spec,
                                                                std::optional<KeepAliveClaim> keep_alive,
                                                                fair::PartyId party) = 0;
  // Unloads once its running requests have ended; returns at once. Unknown keys are ignored.
  virtual void Unload(const std::string& key) = 0;
  // The party needs the model no longer: the same while no other one does (KeepAliveClaims).
  virtual void EndClaim(const std::string& key, const fair::PartyId& party) = 0;

  // Runs a short-lived runner that parses the file and describes it; the daemon itself never parses model
  // files. Parties take turns, and one of them has half of the runners at most.
  virtual Awaitable<api::Result<api::ipc::Inspected>> Inspect(api::ipc::InspectModel request,
                                                              fair::PartyId party) = 0;
  // Starts a short-lived runner that converts a model. One conversion runs at a time; this waits for the turn
  // of its party. `kept` is held until the runner is reaped: whatever it writes into. kOverloaded,
  // kUnavailable (draining).
  virtual Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Convert(api::ipc::ConvertModel request,
                                                                         std::shared_ptr<const void> kept,
                                                                         fair::PartyId party) = 0;

  virtual std::vector<LoadedModel> Loaded() const = 0;              // longest-lived first
  virtual std::vector<LoadingModel> Loading() const { return {}; }  // by key
  // The error that Submit() would return at once for a request of the party for this model
  // (ModelSpec::key); nothing while one may wait.
  virtual std::optional<api::Error> RefusalFor(const std::string& key, const fair::PartyId& party) const = 0;
  virtual int64_t memory_limit() const { return 0; }  // bytes of all runners together; 0 = none
};

}  // namespace quire::scheduler
