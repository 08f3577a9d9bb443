// A runner that serves one model: loads it, takes requests, passes their events on, and stops.
//
// Invariant: a request is in the table exactly while the runner may send events for it that someone wants.
// Events of others are dropped. A runner that sends no frames or makes no progress is killed.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "scheduler/answer_times.h"
#include "scheduler/async_event.h"
#include "scheduler/event_queue.h"
#include "scheduler/liveness.h"
#include "scheduler/load_clock.h"
#include "scheduler/runner_session.h"
#include "scheduler/runner_views.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler {

// The events of one request on their way; shared by the runner's table and the client's TokenStream. I/O
// thread only.
struct EventStream {
  explicit EventStream(boost::asio::any_io_executor executor) : changed(std::move(executor)) {}
  void Fail(api::Error error) {
    events.Fail(std::move(error));
    changed.Notify();
  }

  EventQueue events;
  AnswerTimes times;
  AsyncEvent changed;
  int runner_pid = 0;  // that has or had it last
};

// I/O thread only; held by shared_ptr.
class ModelRunner : public RunnerSession {
 public:
  struct Job {
    std::string key;
    std::string name;
    std::filesystem::path path;
    std::string go_template;
    api::ipc::PromptNames names;
    std::filesystem::path draft_path;      // empty = none
    std::filesystem::path projector_path;  // likewise
    api::ipc::RunnerSettings settings;
    std::chrono::nanoseconds load_timeout;   // <= 0 = never; waiting for memory is not counted
    std::chrono::nanoseconds stall_timeout;  // without a frame or progress; <= 0 = never
    int32_t context_min = 0;                 // as in LoadModel
  };

  // Called in this order: OnMemoryEstimate and OnLoaded at most once, OnStopping, OnReaped. May call back
  // into the runner, except from OnReaped.
  class Observer {
   public:
    virtual ~Observer() = default;
    // It has estimated its model's memory and waits for ApproveLoad() or Stop().
    virtual void OnMemoryEstimate(ModelRunner& runner, MemoryEstimate estimate) = 0;
    virtual void OnLoaded(ModelRunner& runner) = 0;
    // The runner takes nothing more: it failed to load, died, or was stopped. The observer ends the requests
    // that it has not ended, or submits them to another runner.
    virtual void OnStopping(ModelRunner& runner, ExitCause cause, const api::Error& why) = 0;
    virtual void OnReaped(ModelRunner& runner) = 0;  // reaped
    virtual void OnRequestStarted(api::RequestId id) = 0;
    virtual void OnRequestProgress(api::RequestId id) = 0;  // the first that this runner computed for it
    virtual void OnRequestEnded(api::RequestId id) = 0;
    // Likewise, but the runner may still be at it: it failed without a token, or the daemon ended it.
    virtual void OnRequestAbandoned(api::RequestId id) = 0;
    virtual void OnRoom() {}  // a runner was sent a request: there is room for others
  };

  ModelRunner(RunnerHost host, Job job, std::weak_ptr<Observer> observer);
  void Start();  // REQUIRES: held by shared_ptr

  // Approves the load with this cache size. Ignored unless the runner waits for it.
  void ApproveLoad(int64_t cache_bytes);
  // Sends the request, whose events go to `stream` from now on, from `resume` on. kTooLarge if it does not
  // fit a frame, kOverloaded if the runner is behind with reading. REQUIRES: loaded and not stopping.
  api::Result<void> Submit(api::RequestId id, const api::Request& request, const api::ipc::Resume& resume,
                           std::shared_ptr<EventStream> stream);
  // Whether a request of this size may be sent now. REQUIRES: loaded and not stopping.
  bool HasRoomFor(size_t bytes, const fair::PartyId& party) { return link()->HasRoomFor(bytes, party); }
  // The client took deltas: passes credit on if the request still runs.
  void GiveCredit(api::RequestId id, int32_t deltas);
  // The client went away: no more of its events come. False if the runner does not have the request.
  bool Cancel(api::RequestId id);
  bool Has(api::RequestId id) const { return requests_.contains(id); }
  // As RunnerSession::Stop; requests still running end with `why`.
  void Stop(api::Error why, bool at_once);

  RunnerViews& views() { return views_; }
  const std::string& key() const { return job_.key; }
  const std::string& model() const { return job_.name; }
  const api::ipc::ModelInfo& info() const { return info_; }  // REQUIRES: loaded
  const LoadClock& load() const { return load_; }
  // Its model is neither loaded nor given up.
  bool loading() const { return state_ != State::kLoaded && state_ != State::kStopping; }
  const Liveness& liveness() const { return liveness_; }
  bool stalled() const { return liveness_.hung().has_value(); }  // it was killed because it hung
  // When it died or hung. Nothing: it was asked to stop.
  std::optional<DeathTime> death_time() const;
  bool stopping() const { return state_ == State::kStopping; }
  bool loaded() const { return state_ == State::kLoaded; }

 private:
  // kAwaitingMemory: it waits for ApproveLoad().
  enum class State : uint8_t { kStarting, kEstimating, kAwaitingMemory, kLoading, kLoaded, kStopping };

  static boost::asio::awaitable<void> Run(std::shared_ptr<ModelRunner> self);
  struct End {
    ExitCause cause;
    api::Error why;
  };
  boost::asio::awaitable<End> Serve();
  boost::asio::awaitable<std::optional<End>> LoadModel();
  boost::asio::awaitable<std::optional<End>> AwaitLoaded();
  std::string SnapshotIdentity() const;
  bool Loads() const { return state_ == State::kEstimating || state_ == State::kLoading; }
  boost::asio::awaitable<End> Died(std::string what);
  ExitCause ExitCauseOf() const;
  boost::asio::awaitable<std::optional<End>> Watch(Time until);
  void StartStopping(const End& end);

  api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) override;
  void OnRoom() override;
  std::vector<std::string> AddDescriptors(std::vector<api::FileDescriptor>& files) override;
  api::Result<void> HandleMemoryEstimate(const api::ipc::MemoryEstimate& estimate);
  api::Result<void> OnLoadResult(api::ipc::Loaded loaded);
  api::Result<void> OnRequestEvent(api::ipc::RequestEvent event);
  struct Served {
    std::shared_ptr<EventStream> stream;
    size_t tokens_held = 0;  // by its stream, of tokens_held_
  };
  using Requests = std::unordered_map<api::RequestId, Served>;
  void Remove(Requests::iterator request);
  void CountTokens(Served& request);

  const Job job_;
  const std::weak_ptr<Observer> observer_;
  State state_ = State::kStarting;
  api::ipc::ModelInfo info_;
  std::optional<api::Error> load_failure_;
  std::optional<api::Error> stop_reason_;
  Requests requests_;
  size_t tokens_held_ = 0;  // by the streams of requests_
  LoadClock load_;
  Liveness liveness_;
  RunnerViews views_;
};

}  // namespace quire::scheduler
