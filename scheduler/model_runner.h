// A runner that serves one model: loads it, takes requests, hands their events on, and ends.
//
// Invariant: a request is in the table exactly while the runner may send events for it that someone wants.
// Events of others are dropped. A runner that shows no life, or no progress, is ended.
#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "scheduler/event_queue.h"
#include "scheduler/placement.h"
#include "scheduler/runner_session.h"
#include "scheduler/signal.h"

namespace quire::scheduler {

// The events of one request on their way; shared by the runner's table and the client's Generation. I/O
// thread only.
struct EventStream {
  explicit EventStream(boost::asio::any_io_executor executor) : changed(std::move(executor)) {}
  void Fail(api::Error error) {
    events.Fail(std::move(error));
    changed.Notify();
  }

  EventQueue events;
  Signal changed;
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
    std::filesystem::path draft_path;  // empty = none
    int32_t threads = 0;
    int64_t cache_bytes = 0;  // that it asks for; 0 = as it finds right
    bool reuse_prefixes = true;
    std::chrono::nanoseconds load_timeout;   // <= 0 = never; waiting for memory is not counted
    std::chrono::nanoseconds stall_timeout;  // without a sign of life or of progress; <= 0 = never
  };

  // Told of the runner's life, in this order: OnMeasured and OnLoaded at most once, OnEnding, OnGone. May
  // call back into the runner, except from OnGone.
  class Owner {
   public:
    virtual ~Owner() = default;
    // It knows what its model needs and waits for Proceed() or Stop().
    virtual void OnMeasured(ModelRunner& runner, Placement::Need need) = 0;
    virtual void OnLoaded(ModelRunner& runner) = 0;
    // The runner takes nothing more: it failed to load, died, or was stopped. The owner ends the requests
    // that it has not ended, or submits them to another runner.
    virtual void OnEnding(ModelRunner& runner, Placement::Ending ending, const api::Error& why) = 0;
    virtual void OnGone(ModelRunner& runner) = 0;  // reaped
    virtual void OnRequestStarted(api::RequestId id) = 0;
    virtual void OnRequestProgress(api::RequestId id) = 0;  // the first that this runner computed for it
    virtual void OnRequestEnded(api::RequestId id) = 0;     // Finished or Failed came from the runner
  };

  ModelRunner(RunnerHost host, Job job, std::weak_ptr<Owner> owner);
  void Start();  // REQUIRES: held by shared_ptr

  // Lets it load, with so much memory for caches. Ignored unless it waits for that.
  void Proceed(int64_t cache_bytes);
  // Sends the request, whose events go to `stream` from now on, from `resume` on. kTooLarge if it does not
  // fit a frame, kOverloaded if the runner is behind with reading. REQUIRES: loaded and not ending.
  api::Result<void> Submit(api::RequestId id, const api::Request& request, api::ipc::Resume resume,
                           std::shared_ptr<EventStream> stream);
  // The client took deltas: passes credit on if the request still runs.
  void GiveCredit(api::RequestId id, int32_t deltas);
  // The client went away: no more of its events come. False if the runner does not have the request.
  bool Cancel(api::RequestId id);
  bool Has(api::RequestId id) const { return requests_.contains(id); }
  // As RunnerSession::Stop; requests still running end with `why`.
  void Stop(api::Error why, bool at_once);

  const std::string& key() const { return job_.key; }
  const std::string& model() const { return job_.name; }
  const api::ipc::ModelInfo& info() const { return info_; }          // REQUIRES: loaded
  const api::ipc::Beat& beat() const { return beat_; }               // the last
  std::chrono::nanoseconds load_time() const { return load_time_; }  // the wait for memory left out
  int64_t memory_bytes() const;  // that it was allowed to take; 0 = not yet
  // When it last showed life, and progress once its model is loaded.
  Time alive_at() const { return state_ == State::kLoaded ? std::min(heard_at_, moved_at_) : heard_at_; }
  bool stalled() const { return stalled_; }  // it was ended because it got nowhere
  bool ending() const { return state_ == State::kEnding; }

 private:
  // kMeasured: it waits for Proceed().
  enum class State : uint8_t { kStarting, kMeasuring, kMeasured, kLoading, kLoaded, kEnding };

  static boost::asio::awaitable<void> Run(std::shared_ptr<ModelRunner> self);
  struct End {
    Placement::Ending ending;
    api::Error why;
  };
  boost::asio::awaitable<End> Serve();
  boost::asio::awaitable<std::optional<End>> LoadModel();
  boost::asio::awaitable<std::optional<End>> AwaitLoaded(Time start);
  bool Loads() const { return state_ == State::kMeasuring || state_ == State::kLoading; }
  Time LoadDeadline(Time start) const;
  boost::asio::awaitable<End> Died(std::string what);
  Placement::Ending EndingOf() const;
  Time StalledAt() const;
  boost::asio::awaitable<std::optional<End>> Watch(Time until);
  void BeginEnding(const End& end);

  api::Result<void> OnRunnerMessage(api::ipc::ToDaemon message) override;
  api::Result<void> OnNeed(const api::ipc::Need& need);
  api::Result<void> OnLoadResult(api::ipc::Loaded loaded);
  api::Result<void> OnRequestEvent(api::ipc::RequestEvent event);

  const Job job_;
  const std::weak_ptr<Owner> owner_;
  State state_ = State::kStarting;
  api::ipc::ModelInfo info_;
  std::optional<api::Error> load_failure_;
  std::optional<api::Error> stop_reason_;
  std::unordered_map<api::RequestId, std::shared_ptr<EventStream>> requests_;
  Time heard_at_{};  // of any frame
  Time moved_at_{};  // of the last beat with another progress
  api::ipc::Beat beat_;
  Placement::Need need_;
  int64_t cache_granted_ = 0;
  Time measured_at_{};
  std::chrono::nanoseconds waited_{};  // for Proceed()
  std::chrono::nanoseconds load_time_{};
  bool stalled_ = false;
};

}  // namespace quire::scheduler
