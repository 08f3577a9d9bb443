// Carries out the Scheduler's plans with runners, and tells it what happens to them and to requests.
//
// Plans are made from a posted handler only, never from inside an event: events change the Scheduler and
// request a plan. What a client's coroutine changes here is noexcept: half a change would lose a request.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "scheduler/async_event.h"
#include "scheduler/clock.h"
#include "scheduler/dispatcher.h"
#include "scheduler/model_runner.h"
#include "scheduler/outbox.h"
#include "scheduler/poison_guard.h"
#include "scheduler/request_table.h"
#include "scheduler/runner_table.h"
#include "scheduler/scheduler.h"
#include "scheduler/token_stream.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr: by the Dispatcher, and by clients' coroutines.
class PlanExecutor : public ModelRunner::Observer,
                     public RequestCarrier,
                     public std::enable_shared_from_this<PlanExecutor> {
 public:
  PlanExecutor(const RunnerHost& host, const Limits& limits, std::shared_ptr<PoisonGuard> poison);

  // Whoever tells it something requests a plan.
  Scheduler& scheduler() { return scheduler_; }
  RunnerTable& runners() { return runners_; }
  void RequestPlan() noexcept;

  // Gives the request an id and queues it, until Withdraw(). Errors: those of Scheduler::Enqueue, and why it
  // was closed.
  api::Result<void> Enqueue(const std::shared_ptr<PendingRequest>& pending,
                            std::optional<KeepAliveClaim> keep_alive) noexcept;
  // Its client waits no longer. Nothing happens if it was answered.
  void Withdraw(api::RequestId id) noexcept;
  // Takes no request from now on.
  void Close(api::Error why) { closed_ = std::move(why); }
  // Fails waiting and running requests, and stops every runner. REQUIRES: closed.
  void End(bool at_once);
  // Returns once there is no request, at `until` at the latest. False: the awaiting coroutine was canceled.
  static Awaitable<bool> Finish(std::shared_ptr<PlanExecutor> self, Time until);
  // As the Dispatcher's.
  std::string CheckInvariants() const;

 private:
  void OnMemoryEstimate(ModelRunner& runner, MemoryEstimate estimate) override;
  void OnLoaded(ModelRunner& runner) override;
  void OnStopping(ModelRunner& runner, ExitCause cause, const api::Error& why) override;
  void OnReaped(ModelRunner& runner) override;
  void OnRequestStarted(api::RequestId id) override;
  void OnRequestProgress(api::RequestId id) override;
  void OnRequestEnded(api::RequestId id) override;
  void OnRequestAbandoned(api::RequestId id) override;
  void OnRoom() override;
  void OnClientDisconnected(api::RequestId id) override;
  void OnDeltasConsumed(api::RequestId id, int32_t deltas) override;

  void Apply();
  void StartRunner(const Plan::Load& load);
  void RequestSending();
  void FailWith(api::RequestId id, ExitCause cause, const api::Error& why);

  const Limits limits_;
  const RunnerHost host_;
  Scheduler scheduler_;
  RequestTable requests_;
  RunnerTable runners_;
  Outbox outbox_;
  const std::shared_ptr<PoisonGuard> poison_;
  AsyncEvent planned_;  // notified with every plan
  Timer plan_timer_;
  uint64_t ids_ = 0;
  bool plan_requested_ = false;
  bool sending_requested_ = false;
  std::optional<api::Error> closed_;
  bool ended_ = false;  // no more plans by timer
};

}  // namespace quire::scheduler
