// Which model to load, which to end, and which requests to let through: the scheduler's decisions without
// sockets, clock or threads. Time is an argument. Events go in by method; NextPlan() answers what to do now.
//
// Invariants (CheckInvariants):
//  - loading + ready + ending models never exceed models_max: room is made before it is taken;
//  - every request is in exactly one place: waiting for its model, or let through and counted as running;
//  - requests that no runner has taken up yet never exceed queue_max, whether or not their model is loaded;
//  - a model that has requests let through is never ended by a plan.
// Nothing waits for ever: a model that must make room lets no further request through, so it falls idle after
// the requests it already has; and when no model could ever make room, the request is refused at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/error.h"
#include "api/ids.h"

namespace quire::scheduler {

// Owned by the dispatcher; I/O thread only. Keys are ModelSpec::key. Ids grow with the order of arrival.
class Placement {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr const char* kBusy = "server busy, please try again.  maximum pending requests exceeded";
  using KeepAlive = std::chrono::nanoseconds;  // negative = for ever, zero = not at all

  struct Options {
    int32_t models_max = 3;   // < 1 counts as 1
    int32_t queue_max = 512;  // < 1 counts as 1
    KeepAlive default_keep_alive = std::chrono::minutes(5);
  };

  struct Load {
    std::string key;
    api::RequestId first;  // the oldest request that waits for it
  };

  // Decisions already taken: the caller must carry out every one of them.
  struct Plan {
    std::vector<std::string> end;       // stop the runner, then report RunnerGone
    std::vector<Load> load;             // start a runner, then report LoadDone or RunnerEnding and RunnerGone
    std::vector<api::RequestId> admit;  // let through to the loaded runner
    std::vector<api::RequestId> refuse;  // forgotten: every place is held by a pinned model
    std::optional<Time> wake_at;         // plan again at this time even if nothing happens
  };

  // A loaded model as lists show it.
  struct Ready {
    std::string key;
    int32_t running = 0;
    std::optional<Time> expires_at;  // if no further request comes; absent = for ever
  };

  explicit Placement(Options options) : options_(options) {}

  // ---- events ----

  // A request, or a bare load, asks for a model. `keep_alive` takes effect when the request is let through; a
  // negative one also pins the model: it is never ended to make room. Absent leaves the model's value as it
  // is. kOverloaded when queue_max requests already wait.
  api::Result<void> Arrive(api::RequestId id, const std::string& key, std::optional<KeepAlive> keep_alive);
  // The runner took the request up: it waits no more.
  void Start(api::RequestId id);
  // The request ended or its client left, in whatever phase. Unknown ids are ignored.
  void Leave(api::RequestId id, Time now);
  void LoadDone(const std::string& key, Time now);
  // The runner failed to load, died or is being ended for cause. Returns, oldest first, the requests that
  // depended on it; they are forgotten here and the caller must fail them. Those that wait for the next
  // runner stay.
  std::vector<api::RequestId> RunnerEnding(const std::string& key);
  // The runner is reaped: its place is free.
  void RunnerGone(const std::string& key);
  // Ends the model once the requests it has have ended; later ones get a new runner. Unknown keys are
  // ignored.
  void Unload(const std::string& key);

  // ---- decisions and views ----

  [[nodiscard]] Plan NextPlan(Time now);

  std::vector<Ready> ReadyModels(Time now) const;
  int32_t waiting() const { return waiting_; }  // requests no runner has taken up
  int32_t requests() const { return static_cast<int32_t>(requests_.size()); }
  // Empty if all invariants hold, else the first that does not. For tests.
  std::string CheckInvariants() const;

 private:
  enum class State : uint8_t {
    kWanted,   // no runner; requests wait
    kLoading,  // a runner starts
    kReady,
    kEnding,  // a runner ends; its place is not free yet
  };
  struct Model {
    State state = State::kWanted;
    std::deque<api::RequestId> waiting;  // oldest first
    int32_t running = 0;                 // let through and not ended
    KeepAlive keep_alive{};
    bool pinned = false;
    bool fresh = false;         // loaded since the last plan: everyone who waited gets through
    bool unload_asked = false;  // lets nothing through, ends when idle
    bool yielding = false;      // the same, to make room; decided anew by every plan
    Time idle_since{};
    uint64_t last_use = 0;  // grows with each request let through or ended
  };
  struct Request {
    std::string key;
    std::optional<KeepAlive> keep_alive;
    bool admitted = false;
    bool started = false;
  };
  using Models = std::map<std::string, Model>;

  static bool Idle(const Model& model) { return model.running == 0 && model.waiting.empty(); }
  static std::optional<Time> ExpiresAt(const Model& model, Time idle_since);

  void Forget(api::RequestId id);
  void Admit(Models::iterator model, Plan& plan);
  void End(Models::iterator model, Plan& plan);
  void EndUnused(Time now, Plan& plan);
  std::vector<Models::iterator> Wanted();
  void Place(const std::vector<Models::iterator>& wanted, Plan& plan);
  bool MakeRoom(Plan& plan);
  void Refuse(Models::iterator model, Plan& plan);

  Options options_;
  Models models_;  // those with a runner or with waiting requests
  std::unordered_map<api::RequestId, Request> requests_;
  int32_t waiting_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace quire::scheduler
