// Which model to load, which to end, and which requests to let through: the scheduler's decisions without
// sockets, clock or threads. Time is an argument. Events go in by method; NextPlan() answers what to do now.
//
// Invariants (CheckInvariants):
//  - loading + ready + ending models never exceed models_max, and the memory granted to them never exceeds
//    memory_bytes: room is made before it is taken;
//  - every request is in exactly one place: waiting for its model, or let through and counted as running;
//  - requests that no runner has taken up yet never exceed queue_max, nor model_queue_max for one model,
//    whether or not their model is loaded;
//  - a model that has requests let through is never ended by a plan;
//  - of the requests whose runner died under them, one at a time is let through again, beside those that have
//    shown since that they do no harm (but for trial_time at most): who ends the next runner is then known.
// A pinned model whose runner dies is loaded again though nobody asks for it, with a pause that grows.
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

#include "api/base/error.h"
#include "api/base/ids.h"

namespace quire::scheduler {

// Owned by the dispatcher; I/O thread only. Keys are ModelSpec::key. Ids grow with the order of arrival.
class Placement {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr const char* kBusy = "server busy, please try again.  maximum pending requests exceeded";
  using KeepAlive = std::chrono::nanoseconds;           // negative = for ever, zero = not at all
  static constexpr api::RequestId kNobody{UINT64_MAX};  // younger than everybody

  struct Options {
    int32_t models_max = 3;   // < 1 counts as 1
    int32_t queue_max = 512;  // < 1 counts as 1
    KeepAlive default_keep_alive = std::chrono::minutes(5);
    int32_t model_queue_max = 0;  // < 1: no bound of its own
    int64_t memory_bytes = 0;     // of all runners together; < 1: no bound
    KeepAlive trial_time =
        std::chrono::seconds(2);   // after which the next comes in even if nothing was shown
    KeepAlive queue_timeout = {};  // how long a request may wait for a runner to take it up; <= 0: for ever
  };

  // What a runner that has looked at its model's files needs. Bytes.
  struct Need {
    int64_t fixed = 0;        // weights, scratch and the process itself
    int64_t cache = 0;        // what it would take for caches
    int64_t cache_least = 0;  // without which it serves nobody
  };
  struct Grant {
    std::string key;
    int64_t cache_bytes = 0;
  };

  struct TooLarge {
    api::RequestId id;
    int64_t bytes = 0;  // that its model needs at least
  };

  // How a runner came to its end.
  enum class Ending : uint8_t {
    kRefused,  // it could not load the model, or was told to stop: those who depend on it fail
    kKilled,   // by a signal from outside, or stopped: nothing that a request does
    kCrashed,  // by itself, or it went round in circles: perhaps for what a request made it do
  };

  struct Load {
    std::string key;
    api::RequestId first;  // the oldest request that waits for it; kNobody: it is pinned and its runner died
  };

  // Decisions already taken: the caller must carry out every one of them.
  struct Plan {
    std::vector<std::string> end;       // stop the runner, then report RunnerGone
    std::vector<Load> load;             // start a runner, then report LoadDone or RunnerEnding and RunnerGone
    std::vector<api::RequestId> admit;  // let through to the loaded runner
    std::vector<Grant> grant;           // tell the runner that it may load, with so much cache
    std::vector<api::RequestId> refuse;  // forgotten: every place is held by a pinned model
    std::vector<TooLarge> too_large;     // forgotten: there is not the memory, and never will be
    std::vector<api::RequestId> expire;  // forgotten: no runner took them up within queue_timeout
    std::optional<Time> wake_at;         // plan again at this time even if nothing happens
  };

  // Why a plan ended a model.
  enum class EndReason : uint8_t {
    kExpired,    // nobody used it for as long as it was to stay
    kUnloaded,   // asked for by name
    kPlaces,     // another model needed its place
    kMemory,     // or its memory
    kTooLarge,   // there will never be the memory for it
    kCancelled,  // nobody waited for it any more
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
  api::Result<void> Arrive(api::RequestId id, const std::string& key, std::optional<KeepAlive> keep_alive,
                           Time now);
  // queue_max requests already wait.
  bool Full() const { return waiting_ >= std::max(options_.queue_max, 1); }
  // The runner took the request up: it waits no more.
  void Start(api::RequestId id);
  // The runner computed something for it: it did not end the runner, as it may have ended the one before.
  void Progress(api::RequestId id);
  // The runner of a load knows what it needs, and waits for a Grant.
  void Measured(const std::string& key, Need need);
  // The request ended or its client left, in whatever phase. Unknown ids are ignored.
  void Leave(api::RequestId id, Time now);
  void LoadDone(const std::string& key, Time now);
  // The runner takes nothing more. Returns, oldest first, the requests that fail with it; they are forgotten
  // here. The others, those let through among them, wait for the next runner.
  std::vector<api::RequestId> RunnerEnding(const std::string& key, Ending ending, Time now);
  // The runner is reaped: its place is free.
  void RunnerGone(const std::string& key);
  // Ends the model once the requests it has have ended; later ones get a new runner. Unknown keys are
  // ignored.
  void Unload(const std::string& key);
  // From now on nothing is loaded that nobody asks for.
  void Close();

  // ---- decisions and views ----

  [[nodiscard]] Plan NextPlan(Time now);

  std::vector<Ready> ReadyModels(Time now) const;
  int32_t waiting() const { return waiting_; }    // requests no runner has taken up
  bool WantedBack(const std::string& key) const;  // it is going to be loaded though nobody asks
  int64_t pinned_bytes() const;                   // granted to pinned models
  const std::map<EndReason, uint64_t>& ended() const { return ended_; }
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
    bool revived = false;       // its runner died: what was said of its stay holds for the next
    bool wanted_back = false;   // pinned, and its runner died: it is loaded though nobody waits
    bool unload_asked = false;  // lets nothing through, ends when idle
    bool yielding = false;      // the same, to make room; decided anew by every plan
    std::optional<api::RequestId>
        on_trial;                    // let through last of those that lost a runner; has shown nothing
    Time trial_until{};              // nobody is let through behind it before
    std::optional<Need> need;        // known while it loads and after
    std::optional<int64_t> granted;  // bytes, fixed and cache; taken until the runner is reaped
    Time idle_since{};
    uint64_t last_use = 0;  // grows with each request let through or ended
  };
  struct Request {
    std::string key;
    std::optional<KeepAlive> keep_alive;
    bool admitted = false;
    bool started = false;
    std::optional<Time> give_up_at = {};  // unless started
    bool suspect = false;                 // was there when a runner died, and has not been cleared
    int32_t trials_failed = 0;            // runners that died while it was on trial
  };
  // Runners of a model that died, one after the other, with no request served in between.
  struct Deaths {
    int32_t count = 0;
    Time retry_at{};
  };
  using Models = std::map<std::string, Model>;

  static bool Idle(const Model& model) { return model.running == 0 && model.waiting.empty(); }
  static api::RequestId FirstOf(const Model& model) {
    return model.waiting.empty() ? kNobody : model.waiting.front();
  }
  static std::optional<Time> ExpiresAt(const Model& model, Time idle_since);

  void Forget(api::RequestId id);
  void TakeOut(api::RequestId id, Time now);
  bool Convicted(Request& request, bool on_trial, bool alone, Ending ending) const;
  void NoteDeath(const std::string& key, Time now);
  static void WakeBy(Time time, Plan& plan);
  void Expire(Time now, Plan& plan);
  static api::RequestId OldestOf(const std::vector<Models::iterator>& models);
  std::vector<Models::iterator> Measured();
  void GrantMemory(Plan& plan);
  bool GrantTo(Models::iterator model, Plan& plan);
  int64_t Granted(bool leaving_only) const;
  void Admit(Models::iterator model, Time now, Plan& plan);
  void End(Models::iterator model, Plan& plan, EndReason reason);
  void EndUnused(Time now, Plan& plan);
  std::vector<Models::iterator> Wanted(Time now, Plan& plan);
  void Place(const std::vector<Models::iterator>& wanted, Plan& plan);
  bool MakeRoom(Plan& plan, EndReason reason);
  void Refuse(Models::iterator model, Plan& plan);
  int32_t QueuedFor(const std::string& key) const;

  // Deaths while on trial; for a crash one is enough, if nobody else is under suspicion there.
  static constexpr int32_t kTrialsMax = 2;
  static constexpr int32_t kLoadDeathsMax =
      3;  // runners killed while they loaded, until those who wait hear of it

  Options options_;
  Models models_;  // those with a runner or with waiting requests
  std::unordered_map<api::RequestId, Request> requests_;
  std::map<std::string, Deaths> deaths_;  // by key
  int32_t waiting_ = 0;
  std::map<EndReason, uint64_t> ended_;
  uint64_t uses_ = 0;
  bool closed_ = false;
};

}  // namespace quire::scheduler
