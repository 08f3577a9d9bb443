#include "scheduler/plan_executor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <utility>
#include <variant>

namespace quire::scheduler {
namespace {

const api::Error kDisplaced{api::ErrorCode::kOverloaded, kBusy};
const api::Error kUnloaded{api::ErrorCode::kUnavailable, "the model was unloaded"};
const api::Error kPinned{api::ErrorCode::kUnavailable,
                         "no memory for the model: all loaded models are pinned (keep_alive < 0)"};

api::Error TooLargeError(const Plan::TooLarge& one, int64_t memory_bytes) {
  std::string text = fmt::format("the model needs {} bytes of memory; the limit for all models is {} bytes",
                                 one.bytes, memory_bytes);
  if (one.pinned_bytes > 0)
    text += fmt::format(", of which pinned models (keep_alive < 0) use {}", one.pinned_bytes);
  return {api::ErrorCode::kUnavailable, std::move(text)};
}

api::Error ExpiredError(std::chrono::nanoseconds queue_timeout) {
  return {api::ErrorCode::kOverloaded,
          fmt::format("server busy, please try again.  the request timed out in the queue after {} s",
                      std::chrono::duration<double>(queue_timeout).count())};
}

}  // namespace

PlanExecutor::PlanExecutor(const RunnerHost& host, const Limits& limits, std::shared_ptr<PoisonGuard> poison)
    : limits_(limits),
      host_(host),
      scheduler_(limits),
      runners_(limits_, requests_),
      outbox_(scheduler_, requests_, runners_, [this] { RequestPlan(); }),
      poison_(std::move(poison)),
      planned_(host.executor),
      plan_timer_(host.executor) {}

// ---- clients ----

api::Result<void> PlanExecutor::Enqueue(const std::shared_ptr<PendingRequest>& pending,
                                        std::optional<KeepAliveClaim> keep_alive) noexcept {
  if (closed_) return std::unexpected(*closed_);
  pending->id = api::RequestId{++ids_};
  auto queued =
      scheduler_.Enqueue(pending->id, pending->spec.key, keep_alive, pending->arrived, pending->client);
  if (!queued) return queued;
  requests_.pending.emplace(pending->id, pending);
  RequestPlan();
  return queued;
}

void PlanExecutor::Withdraw(api::RequestId id) noexcept {
  if (requests_.pending.erase(id) == 0) return;
  scheduler_.Remove(id, Clock::now());
  RequestPlan();
}

void PlanExecutor::End(bool at_once) {
  const api::Error& why = *closed_;
  ended_ = true;
  scheduler_.Close();
  plan_timer_.cancel();
  outbox_.Clear();
  for (const auto& [id, waiter] : std::exchange(requests_.pending, {})) {
    scheduler_.Remove(id, Clock::now());
    waiter->Answer(std::unexpected(why));
  }
  runners_.StopAll(why, at_once);
  for (auto running = requests_.running.begin(); running != requests_.running.end();) {
    const auto& [id, between] = *running++;
    const ModelRunner* runner = runners_.Find(between.spec.key);
    if (runner != nullptr && runner->Has(id)) continue;
    const auto stream = between.stream;
    OnRequestEnded(id);
    stream->Fail(why);
  }
  RequestPlan();
}

Awaitable<bool> PlanExecutor::Finish(std::shared_ptr<PlanExecutor> self, Time until) {
  bool waited = true;
  while (waited && self->scheduler_.requests() > 0 && Clock::now() < until)
    waited = co_await self->planned_.Wait(until);
  co_return waited;
}

std::string PlanExecutor::CheckInvariants() const {
  if (std::string broken = scheduler_.CheckInvariants(); !broken.empty()) return broken;
  if (std::ssize(requests_.pending) + std::ssize(requests_.running) != scheduler_.requests())
    return "the dispatcher and the scheduler know different requests";
  if (std::string broken = requests_.CheckInvariants(); !broken.empty()) return broken;
  return runners_.CheckInvariants();
}

// ---- plans ----

void PlanExecutor::RequestPlan() noexcept {
  if (std::exchange(plan_requested_, true)) return;
  boost::asio::post(host_.executor, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Apply();
  });
}

void PlanExecutor::Apply() {
  plan_requested_ = false;
  const Plan plan = scheduler_.NextPlan(Clock::now());
  for (const api::RequestId id : plan.displaced) FailWith(id, ExitCause::kRefused, kDisplaced);
  for (const api::RequestId id : plan.expire)
    FailWith(id, ExitCause::kRefused, ExpiredError(limits_.queue_timeout));
  if (!plan.suspended.empty()) spdlog::info("suspended requests={}", plan.suspended.size());
  for (const std::string& key : plan.unload) {
    outbox_.Drop(key);
    if (ModelRunner* runner = runners_.Find(key)) runner->Stop(kUnloaded, /*at_once=*/false);
  }
  for (const Plan::Load& load : plan.load) StartRunner(load);
  outbox_.Add(plan.admit);
  if (outbox_.Send(weak_from_this())) RequestSending();
  for (const Plan::MemoryGrant& grant : plan.grants) runners_.At(grant.key).ApproveLoad(grant.cache_bytes);
  for (const api::RequestId id : plan.reject) FailWith(id, ExitCause::kRefused, kPinned);
  for (const Plan::TooLarge& one : plan.too_large)
    FailWith(one.id, ExitCause::kRefused, TooLargeError(one, limits_.memory_bytes));
  planned_.Notify();
  plan_timer_.cancel();
  if (!plan.wake_at || ended_) return;
  plan_timer_.expires_at(*plan.wake_at);
  plan_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (self && !error) self->RequestPlan();
  });
}

void PlanExecutor::RequestSending() {
  if (std::exchange(sending_requested_, true)) return;
  boost::asio::post(host_.executor, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->sending_requested_ = false;
    if (self->outbox_.Send(weak)) self->RequestSending();
  });
}

void PlanExecutor::StartRunner(const Plan::Load& load) {
  // The restart of a pinned model has no request. Its requests may all have left before one was sent to the
  // last runner, so that each runner's start keeps the spec, not each request's.
  const ModelSpec* waiter = requests_.SpecOf(load.first);
  const ModelSpec spec = waiter != nullptr ? *waiter : runners_.KnownUseOf(load.key).spec;
  const auto runner = std::make_shared<ModelRunner>(
      host_,
      ModelRunner::Job{spec.key, spec.name, spec.path, spec.go_template ? *spec.go_template : "", spec.names,
                       spec.draft_path, spec.projector_path, limits_.SettingsForRunner(),
                       limits_.load_timeout, limits_.stall_timeout, requests_.ContextNeeded(load.key)},
      weak_from_this());
  runners_.Add(runner, spec);
  runner->Start();
}

// Fails a request that scheduler_ has dropped. A runner may have it, and has not started it.
void PlanExecutor::FailWith(api::RequestId id, ExitCause cause, const api::Error& why) {
  auto entry = requests_.running.extract(id);
  if (!entry) return requests_.Refuse(id, why);
  RunningRequest& running = entry.mapped();
  if (ModelRunner* runner = runners_.Find(running.spec.key)) runner->Cancel(id);
  running.stream->Fail(why);
  if (cause == ExitCause::kRefused) return;
  spdlog::error("poison request: killed several runners, rejected from now on model={} error=\"{}\"",
                running.spec.name, why.message);
  running.request.params.num_ctx = running.requested_num_ctx;
  running.request.params.seed = running.requested_seed;
  poison_->Remember(running.spec.key, std::move(running.request));
}

// ---- runners ----

void PlanExecutor::OnMemoryEstimate(ModelRunner& runner, MemoryEstimate estimate) {
  scheduler_.OnMemoryEstimate(runner.key(), estimate);
  RequestPlan();
}

void PlanExecutor::OnLoaded(ModelRunner& runner) {
  scheduler_.LoadDone(runner.key(), Clock::now());
  RequestPlan();
}

void PlanExecutor::OnStopping(ModelRunner& runner, ExitCause cause, const api::Error& why) {
  runners_.CountDeath(runner, cause);
  outbox_.Drop(runner.key());
  const auto lost = scheduler_.RunnerStopping(runner.key(), cause, Clock::now(), runner.death_time());
  for (const api::RequestId id : lost) FailWith(id, cause, why);
  RequestPlan();
}

void PlanExecutor::OnReaped(ModelRunner& runner) {
  scheduler_.RunnerReaped(runner.key());
  if (!scheduler_.WillRestart(runner.key())) runners_.EraseUse(runner.key());
  runners_.Erase(runner.key());
  RequestPlan();
}

void PlanExecutor::OnRequestStarted(api::RequestId id) {
  const RunningRequest* running = requests_.FindRunning(id);
  const bool embeds = running != nullptr && std::holds_alternative<api::EmbedPrompt>(running->request.prompt);
  scheduler_.Start(id, !embeds);
}

void PlanExecutor::OnRequestProgress(api::RequestId id) {
  scheduler_.Progress(id, Clock::now());
  RequestPlan();
}

void PlanExecutor::OnRequestEnded(api::RequestId id) {
  requests_.running.erase(id);
  scheduler_.Remove(id, Clock::now());
  RequestPlan();
}

void PlanExecutor::OnRequestAbandoned(api::RequestId id) {
  requests_.running.erase(id);
  scheduler_.Abandon(id, Clock::now());
  RequestPlan();
}

void PlanExecutor::OnRoom() {
  if (!outbox_.empty()) RequestSending();
}

// ---- answers under way ----

void PlanExecutor::OnClientDisconnected(api::RequestId id) {
  const RunningRequest* running = requests_.FindRunning(id);
  if (running == nullptr) return;
  if (ModelRunner* runner = runners_.Find(running->spec.key)) runner->Cancel(id);
  OnRequestAbandoned(id);
}

void PlanExecutor::OnDeltasConsumed(api::RequestId id, int32_t deltas) {
  const RunningRequest* running = requests_.FindRunning(id);
  ModelRunner* runner = running != nullptr ? runners_.Find(running->spec.key) : nullptr;
  if (runner != nullptr) runner->GiveCredit(id, deltas);
}

}  // namespace quire::scheduler
