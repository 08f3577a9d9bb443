// Which models are loaded: who gets a slot and memory, and which model makes room.
//
// The next model is the one whose party has the fewest models in use and in front of it, where what has just
// given way counts as in use. Among these it is the one that has waited longest. One party that asks for many
// models is one model to others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/base/ids.h"
#include "scheduler/keep_alive_claims.h"
#include "scheduler/plan.h"
#include "scheduler/quarantine.h"
#include "scheduler/request_queue.h"

namespace quire::scheduler {

// A model with a runner or with waiting requests.
struct Model {
  enum class State : uint8_t {
    kNotLoaded,  // no runner; requests wait
    kLoading,    // a runner starts
    kReady,
    kStopping,  // a runner stops; its model slot is not free yet
  };
  // The load of its runner.
  struct Load {
    bool just_done = false;                  // since the last plan: all waiting requests are admitted
    Time since{};                            // with its memory granted
    Time paid_off_at{};                      // it has run as long as its load took
    std::optional<MemoryEstimate> estimate;  // known while it loads and after
    std::optional<int64_t> granted;          // bytes, fixed and cache; taken until the runner is reaped
  };
  // It makes room.
  struct Drain {
    bool active = false;  // as unload_requested; recomputed by every plan
    std::optional<Time> since;
    Time pause_ends{};  // drain_pause
  };
  // Its next load, behind the one that is or was.
  struct Return {
    bool keeps_claims = false;  // its runner died or gave way
    bool pinned = false;        // and its runner died: reloaded without a request
    // It was suspended: it is loaded as if its oldest request had this id, behind all that waited then.
    std::optional<api::RequestId> loads_as;
    uint64_t suspension = 0;  // among suspended models the first goes first
    bool gave_way = false;    // its runner was reaped since the last plan, and its requests were suspended
    // It is pinned and gave its room to answers that had begun: it comes back once as many bytes and a slot
    // are free.
    std::optional<int64_t> gave_room;
  };

  State state = State::kNotLoaded;
  Waiting waiting;
  int32_t running = 0;  // admitted and not finished
  KeepAliveClaims claims;
  Quarantine quarantine;
  Load load;
  Drain drain;
  Return next;
  bool unload_requested = false;           // admits nothing, unloaded when idle
  std::optional<fair::PartyId> unload_by;  // a party, the only one that used it; nothing: for all
  Time idle_since{};
  uint64_t last_use = 0;  // grows with each request admitted or finished

  bool ready() const { return state == State::kReady; }
  bool unused() const { return state == State::kNotLoaded && waiting.empty() && !next.pinned; }
  bool leaves() const { return ready() && unload_requested; }
  bool awaits_memory() const { return state == State::kLoading && load.estimate && !load.granted; }
  bool awaits_free_room() const { return next.gave_room && waiting.empty(); }
  api::RequestId first() const { return waiting.empty() ? Plan::kNoRequest : waiting.front(); }
  // Models are loaded in this order.
  std::pair<api::RequestId, uint64_t> order() const {
    return {next.loads_as ? std::max(*next.loads_as, first()) : first(), next.suspension};
  }
  // Nothing: never. Of a model that nobody has used since its load the default counts.
  std::optional<Time> ExpiresAt(Time now, KeepAlive default_keep_alive) const;
  void GiveRoom() {
    next.pinned = true;
    next.gave_room = load.granted.value_or(0);
  }
};
using Models = std::map<std::string, Model>;

// Owned by the scheduler; I/O thread only.
class ModelSlots {
 public:
  ModelSlots(const SchedulerOptions& options, RequestQueue& queue) : options_(options), queue_(queue) {}

  Models& models() { return models_; }
  const Models& models() const { return models_; }
  // Null: there is none.
  Model* Find(const std::string& key);
  // Erases it unless something waits for it.
  void EraseIfUnused(const std::string& key);
  const std::map<UnloadReason, uint64_t>& unloads() const { return unloads_; }

  // The next runner is not started at once when one after the other dies. Returns how many have.
  int32_t RecordDeath(const std::string& key, Time now);
  void EraseDeaths(const std::string& key) { deaths_.erase(key); }
  bool HasDied(const std::string& key) const { return deaths_.contains(key); }

  // Unloads unused models: loads whose clients all disconnected, models to be unloaded by name, models past
  // their keep-alive.
  void UnloadUnused(Time now, Plan& plan);
  void StartUnload(Models::iterator model, Plan& plan, UnloadReason reason);
  // Models that need a runner, in the order in which they get one.
  std::vector<Models::iterator> ModelsToLoad(Time now, Plan& plan);
  // Loads with a memory estimate and no grant, likewise.
  std::vector<Models::iterator> AwaitingMemory();
  // Assigns free model slots in order and makes room for the other models: one slot each, counting slots that
  // become free anyway. Returns the models for which another one must go.
  std::vector<const Model*> AssignSlots(const std::vector<Models::iterator>& to_load, Time now, Plan& plan);
  // In their order, so that small models do not starve a large one.
  void GrantMemory(Time now, Plan& plan);
  // Empty if no more is taken than there is.
  std::string CheckInvariants() const;

 private:
  // Runners of a model that died, one after the other, with no request served in between.
  struct Deaths {
    int32_t count = 0;
    Time retry_at{};
  };

  int64_t slots() const { return std::max(options_.models_max, 1); }
  int64_t CountOf(Model::State state) const;
  int64_t Granted(bool leaving_only) const;
  void SortByTurn(std::vector<Models::iterator>& models) const;
  bool MayLoad(const Model& model) const;
  std::vector<Model*> ModelsLeaving();
  bool MakeRoom(const Model& for_model, Plan& plan, UnloadReason reason);
  bool GrantTo(Models::iterator model, Time now, Plan& plan);
  void RejectTooLarge(Models::iterator model, int64_t bytes, Plan& plan);

  const SchedulerOptions& options_;
  RequestQueue& queue_;
  Models models_;
  std::map<std::string, Deaths> deaths_;  // by key
  std::map<UnloadReason, uint64_t> unloads_;
};

}  // namespace quire::scheduler
