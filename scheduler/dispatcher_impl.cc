#include "scheduler/dispatcher_impl.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <ctime>
#include <utility>

#include "api/base/request_memory.h"
#include "api/base/text_bounds.h"

namespace quire::scheduler {
namespace {

constexpr int32_t kInspectionsMax = 4;
constexpr int32_t kInspectionsOfOneMax = 2;
constexpr int32_t kConversionsMax = 1;  // each uses all cores

const api::Error kShuttingDown{api::ErrorCode::kUnavailable, "the server is shutting down"};
const api::Error kUnloaded{api::ErrorCode::kUnavailable, "the model was unloaded"};
const api::Error kPinned{api::ErrorCode::kUnavailable,
                         "no memory for the model: all loaded models are pinned (keep_alive < 0)"};
const api::Error kGone{api::ErrorCode::kCancelled, "the client disconnected"};

}  // namespace

// Removes a request from the queue on destruction, also when the waiting coroutine is destroyed.
class Dispatcher::Impl::QueueTicket {
 public:
  QueueTicket(Self self, api::RequestId id) : self_(std::move(self)), id_(id) {}
  ~QueueTicket() {
    if (self_->pending_.erase(id_) == 0) return;
    self_->scheduler_.Remove(id_, Clock::now());
    self_->RequestPlan();
  }
  QueueTicket(const QueueTicket&) = delete;
  QueueTicket& operator=(const QueueTicket&) = delete;

 private:
  const Self self_;
  const api::RequestId id_;
};

Dispatcher::Impl::Impl(const boost::asio::any_io_executor& executor, RunnerProgram runner_program,
                       const Limits& limits)
    : executor_(executor),
      limits_(limits),
      host_{executor,
            Gate(executor),
            std::move(runner_program),
            limits.stop_grace,
            std::make_shared<FileOpener>(executor),
            limits.snapshots,
            limits.runner_arguments,
            limits.link_bytes_max},
      scheduler_({.models_max = limits.loaded_models_max,
                  .queue_max = limits.queue_max,
                  .default_keep_alive = limits.default_keep_alive,
                  .model_queue_max = limits.model_queue_max,
                  .memory_bytes = limits.memory_bytes,
                  .probation_time = limits.probation_time,
                  .drain_limit = limits.drain_limit,
                  .queue_timeout = limits.queue_timeout}),
      hasher_(executor),
      inspections_(executor, {kInspectionsMax, kInspectionsOfOneMax, limits.queue_max}),
      conversions_(executor, {kConversionsMax, kConversionsMax, limits.queue_max}),
      engines_changed_(executor),
      requests_changed_(executor),
      plan_timer_(executor) {}

// ---- clients ----

Awaitable<api::Result<void>> Dispatcher::Impl::Await(Self self, std::shared_ptr<Pending> pending,
                                                     std::optional<KeepAliveClaim> keep_alive) {
  pending->arrived = Clock::now();
  if (pending->request && self->poison_requests_.MayHave(pending->spec.key, *pending->request)) {
    auto checked = co_await CheckPoison(self, pending);
    if (!checked) co_return checked;
  }
  if (self->closed_) co_return std::unexpected(kShuttingDown);
  pending->id = api::RequestId{++self->ids_};
  auto queued = self->Queue(pending, keep_alive);
  if (!queued) co_return queued;
  const QueueTicket ticket(self, pending->id);
  self->RequestPlan();
  while (!pending->answer) {
    const bool waited = co_await pending->answered.Wait();
    if (!waited) co_return std::unexpected(kGone);
  }
  co_return api::Result<void>();
}

Awaitable<api::Result<void>> Dispatcher::Impl::CheckPoison(Self self, std::shared_ptr<Pending> pending) {
  struct JobOwner {  // ends with the client
    std::shared_ptr<RequestHasher::Job> job;
    ~JobOwner() { job->unwanted = true; }
  };
  PoisonRequestList& list = self->poison_requests_;
  const std::string& key = pending->spec.key;
  if (!IsSlowToHash(*pending->request))
    co_return list.Check(key, FingerprintOf(*pending->request), Clock::now());
  const JobOwner owner{std::make_shared<RequestHasher::Job>(*std::move(pending->request))};
  self->hasher_.Start(owner.job, [weak = std::weak_ptr(pending)] {
    if (const auto waiting = weak.lock()) waiting->answered.Notify();
  });
  while (!owner.job->done) {
    const bool waited = co_await pending->answered.Wait();
    if (!waited) co_return std::unexpected(kGone);
  }
  pending->request = std::move(owner.job->request);
  co_return list.Check(key, *owner.job->fingerprint, Clock::now());
}

api::Result<void> Dispatcher::Impl::Queue(const std::shared_ptr<Pending>& pending,
                                          std::optional<KeepAliveClaim> keep_alive) noexcept {
  auto queued = scheduler_.Enqueue(pending->id, pending->spec.key, keep_alive, pending->arrived,
                                   pending->party, pending->length, pending->member);
  if (queued) pending_.emplace(pending->id, pending);
  return queued;
}

Awaitable<api::Result<std::unique_ptr<TokenStream>>> Dispatcher::Impl::Submit(
    Self self, ModelSpec spec, api::Request request, std::optional<KeepAliveClaim> keep_alive) {
  const auto pending = std::make_shared<Pending>(self->executor_);
  pending->spec = std::move(spec);
  pending->party = request.client.Party();
  pending->member = request.client.Member();
  pending->length = request.prompt_only
                        ? AnswerLength::kShort
                        : LengthOf(request.params.num_predict,
                                   api::TextBytes(request.prompt) + api::ImageBytes(request.prompt));
  if (request.now_s == 0) request.now_s = std::time(nullptr);
  pending->size = SizeOf(request);
  const auto runner = self->runners_.find(pending->spec.key);
  const bool loaded = runner != self->runners_.end() && runner->second->loaded();
  // What cannot fit takes no place in the queue.
  auto misfit = self->CheckTexts(request, pending->size, loaded ? &runner->second->info() : nullptr);
  if (misfit) co_return std::unexpected(*std::move(misfit));
  pending->request = std::move(request);
  if (auto answered = co_await Await(self, pending, keep_alive); !answered) {
    co_return std::unexpected(std::move(answered).error());
  }
  co_return *std::move(pending->answer);
}

Awaitable<api::Result<std::chrono::nanoseconds>> Dispatcher::Impl::Load(
    Self self, ModelSpec spec, std::optional<KeepAliveClaim> keep_alive, std::string party) {
  const auto pending = std::make_shared<Pending>(self->executor_);
  pending->spec = std::move(spec);
  pending->party = std::move(party);
  if (auto answered = co_await Await(self, pending, keep_alive); !answered) {
    co_return std::unexpected(std::move(answered).error());
  }
  if (!*pending->answer) co_return std::unexpected(pending->answer->error());
  co_return pending->waited;
}

Awaitable<void> Dispatcher::Impl::Drain(Self self, Clock::time_point deadline) {
  self->closed_ = true;
  self->inspections_.slots->Close(kShuttingDown);
  self->conversions_.slots->Close(kShuttingDown);
  while (self->Busy() && Clock::now() < deadline) {
    const bool waited = co_await self->requests_changed_.Wait(deadline);
    if (!waited) co_return;
  }
  self->End(/*at_once=*/false);
  co_await self->host_.gate.Empty();
}

void Dispatcher::Impl::End(bool at_once) {
  closed_ = true;
  ended_ = true;
  scheduler_.Close();
  plan_timer_.cancel();
  unsent_.clear();
  const auto pending = std::exchange(pending_, {});
  for (const auto& [id, waiter] : pending) {
    scheduler_.Remove(id, Clock::now());
    Answer(*waiter, std::unexpected(kShuttingDown));
  }
  for (const auto& [key, runner] : runners_) runner->Stop(kShuttingDown, at_once);
  for (auto running = running_.begin(); running != running_.end();) {
    const auto [id, between] = *running++;
    if (const auto runner = runners_.find(between.spec.key);
        runner != runners_.end() && runner->second->Has(id)) {
      continue;
    }
    EndRunning(id);
    between.stream->Fail(kShuttingDown);
  }
  for (JobPool* pool : {&inspections_, &conversions_}) {
    for (const auto& session : pool->running) session->Stop(/*at_once=*/true);
    pool->slots->Close(kShuttingDown);
  }
  RequestPlan();
}

void Dispatcher::Impl::Unload(const std::string& key) noexcept {
  scheduler_.Unload(key);
  RequestPlan();
}

void Dispatcher::Impl::EndClaim(const std::string& key, const std::string& party) noexcept {
  scheduler_.EndClaim(key, party, Clock::now());
  RequestPlan();
}

int32_t Dispatcher::Impl::EffectiveContext(int32_t asked, int32_t by_default,
                                           const api::ipc::ModelInfo& info) {
  const int32_t wanted = asked > 0 ? asked : by_default > 0 ? by_default : info.num_ctx;
  return info.context_length > 0 && wanted > info.context_length ? info.context_length : wanted;
}

std::optional<api::Error> Dispatcher::Impl::RefusalFor(const std::string& key, const std::string& party,
                                                       AnswerLength length) const {
  if (!scheduler_.IsFullFor(key, party, length)) return std::nullopt;
  return api::Error{api::ErrorCode::kOverloaded, Scheduler::kBusy};
}

// ---- plans ----

void Dispatcher::Impl::RequestPlan() noexcept {
  if (plan_requested_) return;
  plan_requested_ = true;
  boost::asio::post(executor_, [weak = weak_from_this()] {
    if (const Self self = weak.lock()) self->ApplyPlan();
  });
}

void Dispatcher::Impl::ApplyPlan() {
  plan_requested_ = false;
  const Plan plan = scheduler_.NextPlan(Clock::now());
  for (const api::RequestId id : plan.expire) Expire(id);
  if (!plan.suspended.empty()) spdlog::info("suspended requests={}", plan.suspended.size());
  for (const std::string& key : plan.unload) {
    DropUnsent(key);
    if (const auto found = runners_.find(key); found != runners_.end()) {
      found->second->Stop(kUnloaded, /*at_once=*/false);
    }
  }
  for (const Plan::Load& load : plan.load) StartRunner(load);
  unsent_.insert(unsent_.end(), plan.admit.begin(), plan.admit.end());
  SendAdmitted();
  for (const Plan::MemoryGrant& grant : plan.grants) runners_.at(grant.key)->ApproveLoad(grant.cache_bytes);
  for (const api::RequestId id : plan.reject) FailWith(id, ExitCause::kRefused, kPinned);
  for (const Plan::TooLarge& one : plan.too_large) {
    FailWith(one.id, ExitCause::kRefused, TooLarge(one));
  }
  ArmTimer(plan.wake_at);
  requests_changed_.Notify();
}

api::Error Dispatcher::Impl::TooLarge(const Plan::TooLarge& one) const {
  std::string text = fmt::format("the model needs {} bytes of memory; the limit for all models is {} bytes",
                                 one.bytes, limits_.memory_bytes);
  if (one.pinned_bytes > 0)
    text += fmt::format(", of which pinned models (keep_alive < 0) use {}", one.pinned_bytes);
  return {api::ErrorCode::kUnavailable, std::move(text)};
}

void Dispatcher::Impl::ArmTimer(std::optional<Time> wake_at) {
  plan_timer_.cancel();
  if (!wake_at || ended_) return;
  plan_timer_.expires_at(*wake_at);
  plan_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const Self self = weak.lock();
    if (self && !error) self->RequestPlan();
  });
}

void Dispatcher::Impl::StartRunner(const Plan::Load& load) {
  const auto waiter = pending_.find(load.first);
  const auto running = running_.find(load.first);
  // The restart of a pinned model has no request. Its requests may all have left before one was sent to the
  // last runner, so that each runner's start keeps the spec, not each request's.
  const ModelSpec& spec = waiter != pending_.end()    ? waiter->second->spec
                          : running != running_.end() ? running->second.spec
                                                      : last_use_.at(load.key).spec;
  auto runner = std::make_shared<ModelRunner>(
      host_,
      ModelRunner::Job{spec.key, spec.name, spec.path, spec.go_template ? *spec.go_template : "", spec.names,
                       spec.draft_path, spec.projector_path, SettingsForRunner(), limits_.load_timeout,
                       limits_.stall_timeout, ContextNeeded(load.key), limits_.preparation},
      weak_from_this());
  last_use_[load.key].spec = spec;
  runners_[load.key] = runner;
  runner->Start();
}

// The request waited too long; scheduler_ has dropped it. Cancels it in a runner that has not started it.
void Dispatcher::Impl::Expire(api::RequestId id) {
  const double seconds = std::chrono::duration<double>(limits_.queue_timeout).count();
  const api::Error error{
      api::ErrorCode::kOverloaded,
      fmt::format("server busy, please try again.  the request timed out in the queue after {} s", seconds)};
  if (const auto found = running_.find(id); found != running_.end()) {
    const auto runner = runners_.find(found->second.spec.key);
    if (runner != runners_.end()) runner->second->Cancel(id);
  }
  FailWith(id, ExitCause::kRefused, error);
}

void Dispatcher::Impl::EndRunning(api::RequestId id) {
  running_.erase(id);
  scheduler_.Remove(id, Clock::now());
  RequestPlan();
}

// Its runner may still be at it.
void Dispatcher::Impl::Abandon(api::RequestId id) {
  running_.erase(id);
  scheduler_.Abandon(id, Clock::now());
  RequestPlan();
}

// Fails a request that scheduler_ has dropped.
void Dispatcher::Impl::FailWith(api::RequestId id, ExitCause cause, const api::Error& why) {
  const auto found = running_.find(id);
  if (found == running_.end()) return AnswerIfPending(id, why);
  Running running = std::move(found->second);
  running_.erase(found);
  running.stream->Fail(why);
  if (cause == ExitCause::kRefused) return;
  spdlog::error("poison request: killed several runners, rejected from now on model={} error=\"{}\"",
                running.spec.name, why.message);
  running.request.params.num_ctx = running.requested_num_ctx;
  running.request.params.seed = running.requested_seed;
  RememberPoison(std::move(running));
}

void Dispatcher::Impl::RememberPoison(Running running) {
  const std::string& key = running.spec.key;
  if (!IsSlowToHash(running.request)) {
    poison_requests_.Remember(key, FingerprintOf(running.request), Clock::now());
    return;
  }
  poison_requests_.Announce(key, running.request, Clock::now());
  const auto job = std::make_shared<RequestHasher::Job>(std::move(running.request));
  hasher_.Start(job, [weak = weak_from_this(), job, key] {
    if (const Self self = weak.lock(); self && job->fingerprint)
      self->poison_requests_.Remember(key, *job->fingerprint, Clock::now());
  });
}

void Dispatcher::Impl::Answer(Pending& pending, api::Result<std::unique_ptr<TokenStream>> answer) {
  pending.waited = Clock::now() - pending.arrived;
  pending.answer = std::move(answer);
  pending.answered.Notify();
}

void Dispatcher::Impl::AnswerIfPending(api::RequestId id, const api::Error& error) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  const std::shared_ptr<Pending> pending = found->second;
  pending_.erase(found);
  Answer(*pending, std::unexpected(error));
}

// ---- runners ----

void Dispatcher::Impl::OnMemoryEstimate(ModelRunner& runner, MemoryEstimate estimate) {
  scheduler_.OnMemoryEstimate(runner.key(), estimate);
  RequestPlan();
}

void Dispatcher::Impl::OnLoaded(ModelRunner& runner) {
  scheduler_.LoadDone(runner.key(), Clock::now());
  RequestPlan();
}

void Dispatcher::Impl::OnStopping(ModelRunner& runner, ExitCause cause, const api::Error& why) {
  if (cause != ExitCause::kRefused) {
    const bool killed = cause == ExitCause::kKilled;
    ++restarts_[runner.stalled() ? "stalled" : killed ? "killed" : "crashed"];
  }
  DropUnsent(runner.key());
  for (const api::RequestId id :
       scheduler_.RunnerStopping(runner.key(), cause, Clock::now(), runner.death_time())) {
    FailWith(id, cause, why);
  }
  RequestPlan();
}

void Dispatcher::Impl::OnReaped(ModelRunner& runner) {
  scheduler_.RunnerReaped(runner.key());
  if (!scheduler_.WillRestart(runner.key())) last_use_.erase(runner.key());
  runners_.erase(runner.key());
  RequestPlan();
}

void Dispatcher::Impl::OnRequestStarted(api::RequestId id) { scheduler_.Start(id); }

void Dispatcher::Impl::OnRequestProgress(api::RequestId id) {
  scheduler_.Progress(id, Clock::now());
  RequestPlan();
}

void Dispatcher::Impl::OnRequestEnded(api::RequestId id) { EndRunning(id); }

void Dispatcher::Impl::OnRequestAbandoned(api::RequestId id) { Abandon(id); }

// ---- answers under way ----

void Dispatcher::Impl::OnClientDisconnected(api::RequestId id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const auto runner = runners_.find(found->second.spec.key);
  if (runner != runners_.end()) runner->second->Cancel(id);
  Abandon(id);
}

void Dispatcher::Impl::OnDeltasConsumed(api::RequestId id, int32_t deltas) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const auto runner = runners_.find(found->second.spec.key);
  if (runner != runners_.end()) runner->second->GiveCredit(id, deltas);
}

}  // namespace quire::scheduler
