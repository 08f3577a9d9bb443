// Decides which models to load and unload and which requests to admit, without sockets, clock or threads.
// Time is an argument. Events are reported by method calls; NextPlan() returns what to do now.
//
// Invariants (CheckInvariants):
//  - loading + ready + stopping models never exceed models_max, and the memory granted to them never exceeds
//    memory_bytes: memory is freed before it is granted;
//  - every request is in exactly one state: waiting for its model, or admitted and counted as running;
//  - requests that no runner has started yet never exceed queue_max, nor model_queue_max for one model, and
//    an eighth more of parties that have few of them (QueuePlaces), whether or not their model is loaded;
//  - a plan never unloads a model that has admitted requests, unless it has had its turn
//    (scheduler_turns.cc): then they wait for its next runner and go on there;
//  - requests whose runner died are quarantined: they are re-admitted one at a time, in turns of their
//    parties, so that the request that kills the next runner is known. Between two of them others have their
//    turn (scheduler_quarantine.cc).
// A pinned model whose runner dies is reloaded without a request, with a growing delay. Nothing waits
// forever: a model that must make room stops admitting requests and becomes idle when its running requests
// finish, or is suspended after its turn. If short requests have ended and long ones have not, which
// drain_pause tells apart, it admits again meanwhile. If no model can ever make room, the request is rejected
// at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "scheduler/departures.h"
#include "scheduler/keep_alive_claims.h"
#include "scheduler/queue_places.h"

namespace quire::scheduler {

// Owned by the dispatcher; I/O thread only. Keys are ModelSpec::key. Ids grow with the order of arrival.
class Scheduler {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr const char* kBusy = "server busy, please try again.  maximum pending requests exceeded";
  using KeepAlive = scheduler::KeepAlive;
  static constexpr api::RequestId kNoRequest{UINT64_MAX};  // newer than every request

  struct Options {
    int32_t models_max = 3;   // < 1 counts as 1
    int32_t queue_max = 512;  // < 1 counts as 1
    KeepAlive default_keep_alive = std::chrono::minutes(5);
    int32_t model_queue_max = 0;  // < 1: no limit of its own
    int64_t memory_bytes = 0;     // of all runners together; < 1: no limit
    // The longest turn of quarantined requests and of those between them; 4 and 16 times as long for one that
    // was in runners of whose deaths nothing told the cause.
    KeepAlive probation_time = std::chrono::seconds(2);
    // The longest turn of a model that drains, as long as its answers get on in such turns: then they are
    // suspended. <= 0: never.
    KeepAlive drain_limit = std::chrono::seconds(10);
    // The shortest turn; that of an answer that has not run before is twice as long. A model that drains
    // admits what waits for it after each such pause: an endless answer, for which it cannot become idle,
    // holds up no short one longer. Without a drain_limit it admits nothing.
    KeepAlive drain_pause = std::chrono::milliseconds(200);
    KeepAlive queue_timeout = {};  // how long a request may wait until a runner starts it; <= 0: no limit
  };

  // The memory that a runner needs, known once it has read its model's metadata.
  struct MemoryEstimate {
    int64_t fixed_bytes = 0;      // weights, scratch and the process itself
    int64_t cache_bytes = 0;      // preferred size of the caches
    int64_t cache_min_bytes = 0;  // smallest size of the caches that can serve a request
  };
  struct MemoryGrant {
    std::string key;
    int64_t cache_bytes = 0;
  };

  struct TooLarge {
    api::RequestId id;
    int64_t bytes = 0;         // that its model needs at least
    int64_t pinned_bytes = 0;  // granted to models that are pinned against it
  };

  // Within which a runner died or hung.
  struct DeathTime {
    Time from, to;
  };

  // Why a runner stopped.
  enum class ExitCause : uint8_t {
    kRefused,  // it could not load the model, or was asked to stop: its requests fail
    kKilled,   // by an external signal: not caused by a request
    kCrashed,  // by itself, or it hung: perhaps because of a request
  };

  struct Load {
    std::string key;
    api::RequestId first;  // the oldest waiting request; kNoRequest: pinned, and its runner died
  };

  // Decisions already taken: the caller must carry out every one of them.
  struct Plan {
    std::vector<std::string> unload;        // stop the runner, then report RunnerReaped
    std::vector<api::RequestId> suspended;  // of models to unload: they wait for the next runner
    std::vector<Load> load;  // start a runner, then report LoadDone, or RunnerStopping and RunnerReaped
    std::vector<api::RequestId> admit;   // send to the loaded runner
    std::vector<MemoryGrant> grants;     // approve the load with this cache size
    std::vector<api::RequestId> reject;  // dropped: every model slot holds a pinned model
    std::vector<TooLarge> too_large;     // dropped: more memory than there will ever be
    std::vector<api::RequestId> expire;  // dropped: no runner started them within queue_timeout
    std::optional<Time> wake_at;         // plan again at this time even if nothing happens
  };

  // Why a plan unloaded a model.
  enum class UnloadReason : uint8_t {
    kExpired,     // unused for its keep-alive
    kUnloaded,    // requested by name
    kModelLimit,  // another model needed its slot
    kMemory,      // or its memory
    kTooLarge,    // there will never be the memory for it
    kCancelled,   // no request waited for its load any more
    kSuspended,   // it made room for others for too long: its requests wait for the next runner
  };

  // A loaded model as lists show it.
  struct Ready {
    std::string key;
    int32_t running = 0;
    std::optional<Time> expires_at;  // if no further request comes; absent = never
  };

  explicit Scheduler(Options options)
      : options_(options), places_(options.queue_max, options.model_queue_max) {}

  // ---- events ----

  // Queues a request, or a bare load, for a model. `keep_alive` is its party's claim from when the request is
  // admitted; a negative one also pins the model: it is not unloaded to make room for the party itself, and,
  // of an admin, for nobody. Absent leaves the party's claim as it is. kOverloaded when the party
  // (api::Client) finds no place. `member`: of an address, which has turns of its own.
  api::Result<void> Enqueue(api::RequestId id, const std::string& key,
                            std::optional<KeepAliveClaim> keep_alive, Time now, const std::string& party = {},
                            AnswerLength length = AnswerLength::kAny, const std::string& member = {});
  // Whether a request of the party for this model would find no place.
  bool IsFullFor(const std::string& key, const std::string& party,
                 AnswerLength length = AnswerLength::kAny) const {
    return !places_.HasRoom(key, party, length);
  }
  // The runner was sent the request: before, it cannot be why the runner dies. True: NextPlan() has another
  // wake_at.
  bool Sent(api::RequestId id, Time now);
  // The runner started the request: it no longer waits, also if its runner has been stopped meanwhile.
  void Start(api::RequestId id);
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
  void EndClaim(const std::string& key, const std::string& party, Time now);
  // From now on no pinned model is reloaded without a request.
  void Close();

  // ---- decisions and views ----

  [[nodiscard]] Plan NextPlan(Time now);

  std::vector<Ready> ReadyModels(Time now) const;
  int32_t waiting() const { return places_.waiting(); }  // requests that no runner has started
  bool WillRestart(const std::string& key) const;        // it will be reloaded without a request
  const std::map<UnloadReason, uint64_t>& unloads() const { return unloads_; }
  int32_t requests() const { return static_cast<int32_t>(requests_.size()); }
  // Empty if all invariants hold, else the first that does not. For tests.
  std::string CheckInvariants() const;

 private:
  enum class State : uint8_t {
    kNotLoaded,  // no runner; requests wait
    kLoading,    // a runner starts
    kReady,
    kStopping,  // a runner stops; its model slot is not free yet
  };
  struct Model {
    State state = State::kNotLoaded;
    std::deque<api::RequestId> waiting;  // oldest first
    int32_t running = 0;                 // admitted and not finished
    KeepAliveClaims claims;
    bool just_loaded = false;              // loaded since the last plan: all waiting requests are admitted
    bool restarted = false;                // its runner died: the claims carry over to the next
    bool restart_pinned = false;           // pinned, and its runner died: reloaded without a request
    bool unload_requested = false;         // admits nothing, unloaded when idle
    std::optional<std::string> unload_by;  // a party, the only one that used it; nothing: for all
    bool draining = false;  // the same as unload_requested, to make room; recomputed by every plan
    std::optional<Time> draining_since;
    Time pause_ends{};  // of a model that drains: drain_pause
    // It was suspended: it is loaded as if its oldest request had this id, behind all that waited then.
    std::optional<api::RequestId> loads_as;
    uint64_t suspension = 0;  // among suspended models the first goes first
    bool gave_way = false;    // its runner was reaped since the last plan, and its requests were suspended
    Time loading_since{};     // with its memory granted
    Time paid_off_at{};       // it has run as long as its load took
    std::set<api::RequestId> in_turn;  // while quarantined ones wait: admitted last, without progress
    Time turn_ends{};                  // then others are admitted even so
    bool open_turn_is_next = false;
    std::map<std::string, uint64_t> last_probations;  // of parties; a later one has a larger number
    Departures departures;
    std::optional<MemoryEstimate> estimate;  // known while it loads and after
    std::optional<int64_t> granted;          // bytes, fixed and cache; taken until the runner is reaped
    // It is pinned and gave its room to answers that had begun: it comes back once as many bytes and a slot
    // are free.
    std::optional<int64_t> gave_room;
    Time idle_since{};
    uint64_t last_use = 0;  // grows with each request admitted or finished
  };
  struct Request {
    std::string key;
    std::string party;
    std::string member;  // of the party; empty: the party is one
    AnswerLength length = AnswerLength::kAny;
    std::optional<KeepAliveClaim> keep_alive;
    bool admitted = false;
    bool started = false;
    std::optional<Time> give_up_at = {};     // unless started
    bool quarantined = false;                // was in a runner that died; no progress since
    int32_t probation_failures = 0;          // runners that were killed, perhaps because of it
    int32_t unexplained_deaths = 0;          // runners that died while it was one of several candidates
    bool tried_first = false;                // the last to come before such a death
    Time admitted_at{};                      // last
    std::optional<Time> sent_at = {};        // since it was admitted
    std::optional<Time> progressed_at = {};  // since it was admitted: the first time
    KeepAlive ran{};                         // in runners before
    // Turns in which what the runners before had computed took more than half of the time.
    int32_t short_turns_lost = 0;  // since the last whole one
    int32_t whole_turns_lost = 0;
  };
  // A party, or a member of it. Points into requests_.
  using PartyMember = std::pair<std::string_view, std::string_view>;
  static PartyMember MemberOf(const Request& request) { return {request.party, request.member}; }
  // An owner that waits for room.
  struct Waiter {
    KeepAlive longest_run{};       // of all its requests
    int32_t whole_turns_lost = 0;  // of those that wait for room: the most
  };
  using Waiters = std::map<PartyMember, Waiter>;
  // Runners of a model that died, one after the other, with no request served in between.
  struct Deaths {
    int32_t count = 0;
    Time retry_at{};
  };
  using Models = std::map<std::string, Model>;

  static bool Idle(const Model& model) { return model.running == 0 && model.waiting.empty(); }
  static api::RequestId FirstOf(const Model& model) {
    return model.waiting.empty() ? kNoRequest : model.waiting.front();
  }
  // Models are loaded in this order.
  static std::pair<api::RequestId, uint64_t> OrderOf(const Model& model) {
    return {model.loads_as ? std::max(*model.loads_as, FirstOf(model)) : FirstOf(model), model.suspension};
  }
  std::optional<Time> ExpiresAt(const Model& model, Time now) const;
  KeepAliveClaims::Parties PartiesOf(const Model& model) const;
  void CancelRestart(Models::iterator model);

  void EraseRequest(api::RequestId id);
  void RemoveExisting(api::RequestId id, Time now);
  void RecordDeparture(const Request& request, Time now);
  // Requests that may have ended their runner: it has computed nothing for them.
  struct Candidates {
    int32_t sent = 0;                   // to the runner, candidates or not
    int32_t quarantined = 0;            // candidates of an earlier death, too
    int32_t had_longest_probation = 0;  // of these
    int32_t newcomers = 0;              // of this one only, or their clients have left
    api::RequestId last{};              // quarantined, sent last
  };
  Candidates CandidatesFor(const std::string& key, const DeathTime& died) const;
  static bool WasSentBy(const Request& request, Time when) {
    return request.sent_at && *request.sent_at <= when;
  }
  KeepAlive ProbationOf(const Request& request) const;
  bool IsToBlame(const Request& request, const Candidates& candidates, Time died_at) const;
  bool ShouldFail(api::RequestId id, Request& request, const Candidates& candidates, ExitCause cause,
                  Time died_at) const;
  void RecordDeath(const std::string& key, Time now);
  static void WakeBy(Time time, Plan& plan);
  void Expire(Time now, Plan& plan);
  static api::RequestId OldestOf(const std::vector<Models::iterator>& models);
  std::vector<Models::iterator> AwaitingMemory();
  void GrantMemory(Time now, Plan& plan);
  bool GrantTo(Models::iterator model, Time now, Plan& plan);
  int64_t Granted(bool leaving_only) const;
  void Admit(Models::iterator model, Time now, Plan& plan);
  void AdmitTurn(Model& model, Time now, Plan& plan);
  void AdmitOne(Model& model, api::RequestId id, Time now, Plan& plan);
  std::set<PartyMember> MembersInQuarantine(const Model& model) const;
  std::vector<api::RequestId> OpenTurnOf(const Model& model, const std::set<PartyMember>& quarantined) const;
  api::RequestId NextOnProbation(const Model& model) const;
  void StartUnload(Models::iterator model, Plan& plan, UnloadReason reason);
  void PassTurnsOn(Time now);
  void AdmitAfterPause(Models::iterator model, Time now, Plan& plan);
  void SuspendIfOverdue(Models::iterator model, const Waiters& waiters, Time now, Plan& plan);
  void Suspend(Models::iterator model, Time now, Plan& plan);
  KeepAlive TurnOf(const std::string& key, const Waiters& waiters) const;
  Time FirstTurnsEnd(const std::string& key, Time draining_since) const;
  Waiters WaitersFor(const std::vector<const Model*>& in_need, Time now) const;
  static void EndRun(Request& request, Time now);
  void CountTurn(Request& request, Time now) const;
  KeepAlive WholeTurn(int32_t doublings) const;
  void SortByTurn(std::vector<Models::iterator>& models) const;
  void UnloadUnused(Time now, Plan& plan);
  std::vector<Models::iterator> ModelsToLoad(Time now, Plan& plan);
  std::vector<Model*> ModelsLeaving();
  std::vector<const Model*> AssignSlots(const std::vector<Models::iterator>& to_load, Time now, Plan& plan);
  bool MakeRoom(const Model& for_model, Plan& plan, UnloadReason reason);
  bool HasBegun(const Model& model) const;
  static void GiveRoom(Model& model);
  static bool AwaitsFreeRoom(const Model& model) { return model.gave_room && model.waiting.empty(); }
  bool MayLoad(const Model& model) const;
  void Reject(Models::iterator model, Plan& plan);

  static constexpr int32_t kProbationFailuresMax = 2;  // runners killed by a signal; a crash is enough
  static constexpr int32_t kLoadDeathsMax =
      3;  // runners killed while loading before the waiting requests fail

  Options options_;
  Models models_;  // those with a runner or with waiting requests
  std::unordered_map<api::RequestId, Request> requests_;
  std::map<std::string, Deaths> deaths_;  // by key
  QueuePlaces places_;                    // of requests that no runner has started
  api::RequestId newest_{};               // of all requests so far
  uint64_t suspensions_ = 0;
  uint64_t probations_ = 0;
  std::map<UnloadReason, uint64_t> unloads_;
  uint64_t uses_ = 0;
  bool closed_ = false;
};

}  // namespace quire::scheduler
