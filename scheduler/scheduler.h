// Decides which models to load and unload and which requests to admit, without sockets, clock or threads.
// Time is an argument. Events are reported by method calls; NextPlan() returns what to do now.
//
// Invariants (CheckInvariants):
//  - loading + ready + stopping models never exceed models_max, and the memory granted to them never exceeds
//    memory_bytes: memory is freed before it is granted;
//  - every request is in exactly one state: waiting for its model, or admitted and counted as running;
//  - requests that no runner has started yet never exceed queue_max, nor model_queue_max for one model,
//    whether or not their model is loaded; parties share these places (RequestQueue);
//  - a plan never unloads a model that has admitted requests, unless it has had its turn
//    (drain_turns.h): then they wait for its next runner and go on there;
//  - requests whose runner died are quarantined: they are re-admitted one at a time, in turns of their
//    parties, so that the request that kills the next runner is known. Between two of them others have their
//    turn (quarantine.h).
// A pinned model whose runner dies is reloaded without a request, with a growing delay. Nothing waits
// forever: a model that must make room stops admitting requests and becomes idle when its running requests
// finish, or is suspended after its turn. If short requests have ended and long ones have not, which
// drain_pause tells apart, it admits again meanwhile. If no model can ever make room, the request is rejected
// at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "scheduler/drain_turns.h"
#include "scheduler/model_slots.h"
#include "scheduler/plan.h"
#include "scheduler/request_queue.h"

namespace quire::scheduler {

// Owned by the dispatcher; I/O thread only. Keys are ModelSpec::key. Ids grow with the order of arrival.
class Scheduler {
 public:
  // A loaded model as lists show it.
  struct Ready {
    std::string key;
    int32_t running = 0;
    std::optional<Time> expires_at;  // if no further request comes; absent = never
  };

  explicit Scheduler(const SchedulerOptions& options)
      : options_(options), queue_(options), slots_(options_, queue_), turns_(options_, queue_, slots_) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- events ----

  // Queues a request, or a bare load, for a model. `keep_alive` is its party's claim from when the request is
  // admitted; a negative one also pins the model: it is not unloaded to make room for the party itself, and,
  // of an admin, for nobody. Absent leaves the party's claim as it is. kOverloaded when the party finds no
  // place. Members of an address have turns of their own.
  api::Result<void> Enqueue(api::RequestId id, const std::string& key,
                            std::optional<KeepAliveClaim> keep_alive, Time now,
                            const api::Client& client = {});
  // Whether a request of the party for this model would find no place.
  bool IsFullFor(const std::string& key, const fair::PartyId& party) { return !queue_.PlaceFor(key, party); }
  // The runner was sent the request: before, it cannot be why the runner dies. True: NextPlan() has another
  // wake_at.
  bool Sent(api::RequestId id, Time now);
  // The runner started the request: it no longer waits, also if its runner has been stopped meanwhile.
  // `answers`: its client gets what the runner computes piece by piece.
  void Start(api::RequestId id, bool answers = true);
  // The runner computed something new for the request: its quarantine ends.
  void Progress(api::RequestId id, Time now);
  // The runner of a load has estimated its memory and waits for a grant.
  void OnMemoryEstimate(const std::string& key, MemoryEstimate estimate);
  // The request ended, in whatever phase. Unknown ids are ignored.
  void Remove(api::RequestId id, Time now);
  // The same where its runner may still be at it: its client left, or it did not get through.
  void Abandon(api::RequestId id, Time now);
  void LoadDone(const std::string& key, Time now);
  // The runner accepts nothing more. Returns, oldest first, the requests that fail with it; they are dropped
  // here. The others, including admitted ones, wait for the next runner. `died`: nothing: now.
  std::vector<api::RequestId> RunnerStopping(const std::string& key, ExitCause cause, Time now,
                                             std::optional<DeathTime> died = {});
  // The runner is reaped: its model slot is free.
  void RunnerReaped(const std::string& key);
  // Unloads the model when its admitted requests have finished; later requests get a new runner. Unknown keys
  // are ignored.
  void Unload(const std::string& key);
  // Ends the party's claim. Unloads the model as Unload() does if it has no claim of another party, nor a
  // request, until one comes.
  void EndClaim(const std::string& key, const fair::PartyId& party, Time now);
  // From now on no pinned model is reloaded without a request.
  void Close();

  // ---- decisions and views ----

  [[nodiscard]] Plan NextPlan(Time now);

  std::vector<Ready> ReadyModels(Time now) const;
  int32_t waiting() const { return queue_.waiting(); }  // requests that no runner has started
  bool WillRestart(const std::string& key) const;       // it will be reloaded without a request
  const std::map<UnloadReason, uint64_t>& unloads() const { return slots_.unloads(); }
  int32_t requests() const { return static_cast<int32_t>(queue_.requests().size()); }
  // Empty if all invariants hold, else the first that does not. For tests.
  std::string CheckInvariants() const;

 private:
  void Admit(Model& model, Time now, Plan& plan);
  void CancelRestart(const std::string& key);

  const SchedulerOptions options_;
  RequestQueue queue_;
  ModelSlots slots_;
  DrainTurns turns_;
  uint64_t uses_ = 0;
  bool closed_ = false;
};

}  // namespace quire::scheduler
