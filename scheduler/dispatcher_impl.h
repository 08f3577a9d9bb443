// The dispatcher's implementation: applies the Scheduler's plans to ModelRunners and answers waiting clients.
//
// Plans are made from a posted handler only, never from inside an event: events change the Scheduler
// and request a plan. What a client's coroutine changes here is noexcept: half a change would lose a
// request.
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "scheduler/async_event.h"
#include "scheduler/clock.h"
#include "scheduler/conversion.h"
#include "scheduler/dispatcher.h"
#include "scheduler/gate.h"
#include "scheduler/inspection.h"
#include "scheduler/job_slots.h"
#include "scheduler/model_runner.h"
#include "scheduler/poison_request_list.h"
#include "scheduler/request_hasher.h"
#include "scheduler/scheduler.h"
#include "scheduler/token_stream.h"

namespace quire::scheduler {

// I/O thread only. Coroutines of clients and of runners share it; the Dispatcher's destructor closes it.
class Dispatcher::Impl : public ModelRunner::Observer,
                         public RequestCarrier,
                         public std::enable_shared_from_this<Impl> {
 public:
  using Self = std::shared_ptr<Impl>;

  Impl(const boost::asio::any_io_executor& executor, RunnerProgram runner_program, const Limits& limits);

  static Awaitable<api::Result<std::unique_ptr<TokenStream>>> Submit(
      Self self, ModelSpec spec, api::Request request, std::optional<KeepAliveClaim> keep_alive);
  static Awaitable<api::Result<std::chrono::nanoseconds>> Load(Self self, ModelSpec spec,
                                                               std::optional<KeepAliveClaim> keep_alive,
                                                               std::string party);
  // One-off jobs (dispatcher_jobs.cc).
  static Awaitable<api::Result<api::ipc::Inspected>> Inspect(Self self, api::ipc::InspectModel request,
                                                             std::string party);
  static Awaitable<api::Result<api::ipc::Inspected>> InspectOnce(Self self, api::ipc::InspectModel request,
                                                                 std::string party);
  static Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Convert(Self self,
                                                                        api::ipc::ConvertModel request,
                                                                        std::shared_ptr<const void> kept,
                                                                        std::string party);

  static Awaitable<void> Drain(Self self, std::chrono::steady_clock::time_point deadline);

  // Views (dispatcher_views.cc).
  static Awaitable<void> InspectEngines(Self self, std::chrono::steady_clock::time_point until);
  std::vector<EngineView> Engines() const;
  static Awaitable<api::Result<CacheView>> InspectCache(Self self, std::string key,
                                                        api::ipc::InspectCache question, int known_pid);
  std::vector<LoadedModel> Loaded() const;
  std::vector<LoadingModel> Loading() const;
  Counters counters() const;
  bool Stuck(std::chrono::steady_clock::time_point now) const;
  std::string CheckInvariants() const;

  void Unload(const std::string& key) noexcept;
  void EndClaim(const std::string& key, const std::string& party) noexcept;
  std::optional<api::Error> RefusalFor(const std::string& key, const std::string& party,
                                       AnswerLength length) const;
  // The operator's, with the memory that there is.
  api::ipc::RunnerSettings SettingsForRunner() const {
    api::ipc::RunnerSettings settings = limits_.runner_settings;
    settings.memory_bytes = memory_limit();
    return settings;
  }
  int64_t memory_limit() const { return std::max<int64_t>(limits_.memory_bytes, 0); }
  // Rejects everything from now on, fails waiting and running requests, and stops every runner.
  void End(bool at_once);
  void StopOpening() { host_.opener->Stop(); }

 private:
  // In bytes, of a request. Long lists make this slow to know.
  struct RequestSize {
    size_t texts = 0;   // api::TextBytes()
    size_t frame = 0;   // about what its frame has
    size_t memory = 0;  // api::MemoryBytes()
  };
  // A client that waits in Submit or Load. Also known to scheduler_, under the same id, until answered.
  struct Pending {
    explicit Pending(boost::asio::any_io_executor executor) : answered(std::move(executor)) {}
    api::RequestId id{};
    ModelSpec spec;
    std::optional<api::Request> request;  // absent: a bare load
    RequestSize size;
    std::string party;   // whose it is (api::Client)
    std::string member;  // of the party
    AnswerLength length = AnswerLength::kShort;
    std::chrono::steady_clock::time_point arrived;
    std::chrono::nanoseconds waited{};
    std::optional<api::Result<std::unique_ptr<TokenStream>>> answer;  // of a bare load: null
    AsyncEvent answered;
  };
  // A running request: in a runner, or between two. Also known to scheduler_, under the same
  // id.
  struct Running {
    ModelSpec spec;
    api::Request request;
    std::shared_ptr<EventStream> stream;
    RequestSize size;
    // As the client sent them; `request` has the effective values.
    int32_t requested_num_ctx = 0;
    int64_t requested_seed = -1;
    int32_t context = 0;  // tokens; as in api::ipc::Resume
  };
  class QueueTicket;
  class JobSlot;
  class OwnedConversion;
  // The runners of one kind of one-off job.
  struct JobPool {
    JobPool(boost::asio::any_io_executor executor, JobSlots::Limits limits)
        : slots(std::make_shared<JobSlots>(std::move(executor), limits)) {}
    std::shared_ptr<JobSlots> slots;
    std::unordered_set<std::shared_ptr<RunnerSession>> running = {};
  };
  // The context a request gets: what it asks for, else the default, else what the runner's caches hold of one
  // sequence; within what the model was trained for if that is known.
  static int32_t EffectiveContext(int32_t asked, int32_t by_default, const api::ipc::ModelInfo& info);

  // Queues the request and waits for its answer. kCancelled: the awaiting coroutine was canceled.
  static Awaitable<api::Result<void>> Await(Self self, std::shared_ptr<Pending> pending,
                                            std::optional<KeepAliveClaim> keep_alive);
  // Whether the request has killed runners. A large one leaves `pending` while it is read on another thread.
  static Awaitable<api::Result<void>> CheckPoison(Self self, std::shared_ptr<Pending> pending);
  void RememberPoison(Running running);
  api::Result<void> Queue(const std::shared_ptr<Pending>& pending,
                          std::optional<KeepAliveClaim> keep_alive) noexcept;

  void OnMemoryEstimate(ModelRunner& runner, MemoryEstimate estimate) override;
  void OnLoaded(ModelRunner& runner) override;
  void OnStopping(ModelRunner& runner, ExitCause cause, const api::Error& why) override;
  void OnReaped(ModelRunner& runner) override;
  void OnRequestStarted(api::RequestId id) override;
  void OnRequestProgress(api::RequestId id) override;
  void OnRequestEnded(api::RequestId id) override;
  void OnRequestAbandoned(api::RequestId id) override;
  void OnEngineInspected() override { engines_changed_.Notify(); }
  void OnRoom() override;
  void OnClientDisconnected(api::RequestId id) override;
  void OnDeltasConsumed(api::RequestId id, int32_t deltas) override;

  void RequestPlan() noexcept;
  void ApplyPlan();
  void StartRunner(const Plan::Load& load);

  // Sending (dispatcher_sending.cc).
  void RequestSending();
  void SendAdmitted();
  static RequestSize SizeOf(const api::Request& request);
  // Whose large requests wait until a runner has prepared others: the runner's key, and the party.
  using Delayed = std::set<std::pair<std::string_view, std::string_view>>;
  struct Unsent {
    std::string_view key, party;
    RequestSize size;
  };
  Unsent FindUnsent(api::RequestId id) const;
  bool AwaitsPreparation(const Unsent& unsent, Delayed& delayed) const;
  std::optional<api::Error> CheckTexts(const api::Request& request, const RequestSize& size,
                                       const api::ipc::ModelInfo* info) const;
  void DropUnsent(const std::string& key);
  bool Admit(api::RequestId id);
  int32_t ContextNeeded(const std::string& key) const;
  void DecideContext(Running& running, const api::ipc::ModelInfo& info) const;
  api::Result<std::unique_ptr<TokenStream>> SubmitTo(ModelRunner& runner, Pending& pending);
  void RecordSent(api::RequestId id);
  bool Resume(api::RequestId id, Running& running);
  api::Result<void> ResumeIn(ModelRunner& runner, api::RequestId id, Running& running);

  void Expire(api::RequestId id);
  void EndRunning(api::RequestId id);
  void Abandon(api::RequestId id);
  void FailWith(api::RequestId id, ExitCause cause, const api::Error& why);
  void Answer(Pending& pending, api::Result<std::unique_ptr<TokenStream>> answer);
  void AnswerIfPending(api::RequestId id, const api::Error& error);
  api::Error TooLarge(const Plan::TooLarge& one) const;
  void ArmTimer(std::optional<Time> wake_at);
  bool Busy() const {
    return scheduler_.requests() > 0 || !inspections_.running.empty() || !conversions_.running.empty();
  }

  const boost::asio::any_io_executor executor_;
  const Limits limits_;
  RunnerHost host_;
  Scheduler scheduler_;
  std::map<std::string, std::shared_ptr<ModelRunner>> runners_;  // by key, until reaped
  struct LastUse {
    ModelSpec spec;
    int32_t num_ctx = 0;
  };
  std::map<std::string, LastUse> last_use_;  // by key, of each model that has a runner or will restart
  std::unordered_map<api::RequestId, std::shared_ptr<Pending>> pending_;
  std::unordered_map<api::RequestId, Running> running_;
  std::deque<api::RequestId> unsent_;  // admitted, and not sent to their runners yet; oldest first
  PoisonRequestList poison_requests_;
  RequestHasher hasher_;
  JobPool inspections_;
  JobPool conversions_;
  AsyncEvent engines_changed_;   // notified when an engine has answered
  AsyncEvent requests_changed_;  // notified with every plan, for Drain
  Timer plan_timer_;
  std::map<std::string, uint64_t> restarts_;  // by reason
  uint64_t ids_ = 0;
  bool plan_requested_ = false;
  bool sending_requested_ = false;
  bool closed_ = false;  // draining or ended: nothing new
  bool ended_ = false;   // no more plans by timer
};

}  // namespace quire::scheduler
