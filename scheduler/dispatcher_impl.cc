#include "scheduler/dispatcher_impl.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "scheduler/generation.h"

namespace quire::scheduler {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kInspectionsMax = 4;

const api::Error kShuttingDown{api::ErrorCode::kUnavailable, "the server is shutting down"};
const api::Error kUnloaded{api::ErrorCode::kUnavailable, "the model was unloaded"};
const api::Error kPinned{api::ErrorCode::kUnavailable,
                         "no room for the model: every loaded model is kept for ever (keep_alive < 0)"};
const api::Error kGone{api::ErrorCode::kCancelled, "the client went away"};

// The context a request gets: what it asks for, else the default, within what the model was trained for if
// that is known.
int32_t EffectiveContext(int32_t asked, int32_t by_default, int32_t trained) {
  const int32_t wanted = asked > 0 ? asked : std::max(by_default, 0);
  return trained > 0 && wanted > trained ? trained : wanted;
}

std::optional<std::chrono::system_clock::time_point> WallClock(std::optional<Clock::time_point> at,
                                                               Clock::time_point now) {
  if (!at) return std::nullopt;
  const auto wall_now = std::chrono::system_clock::now();
  if (*at - now > std::chrono::system_clock::time_point::max() - wall_now) return std::nullopt;
  return wall_now + std::chrono::duration_cast<std::chrono::system_clock::duration>(*at - now);
}

}  // namespace

// A request's stay in the queue; ends it also when the waiting coroutine is destroyed.
class Dispatcher::Impl::Attendance {
 public:
  Attendance(Self self, api::RequestId id) : self_(std::move(self)), id_(id) {}
  ~Attendance() {
    if (self_->pending_.erase(id_) == 0) return;
    self_->placement_.Leave(id_, Clock::now());
    self_->AskForPlan();
  }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;

 private:
  const Self self_;
  const api::RequestId id_;
};

// One of the kInspectionsMax places; the inspection ends with it.
class Dispatcher::Impl::InspectionPlace {
 public:
  InspectionPlace(Self self, std::shared_ptr<Inspection> inspection)
      : self_(std::move(self)), inspection_(std::move(inspection)) {
    self_->inspections_.insert(inspection_);
  }
  ~InspectionPlace() {
    inspection_->Stop(/*at_once=*/true);
    self_->inspections_.erase(inspection_);
    self_->inspections_changed_.Notify();
    self_->requests_changed_.Notify();
  }
  InspectionPlace(const InspectionPlace&) = delete;
  InspectionPlace& operator=(const InspectionPlace&) = delete;

 private:
  const Self self_;
  const std::shared_ptr<Inspection> inspection_;
};

Dispatcher::Impl::Impl(const boost::asio::any_io_executor& executor, std::filesystem::path runner_binary,
                       Limits limits)
    : executor_(executor),
      limits_(limits),
      host_{executor, Gate(executor), std::move(runner_binary), limits.stop_grace},
      placement_({limits.loaded_models_max, limits.queue_max, limits.default_keep_alive}),
      inspections_changed_(executor),
      requests_changed_(executor),
      plan_timer_(executor) {}

// ---- clients ----

Awaitable<api::Result<void>> Dispatcher::Impl::Await(Self self, std::shared_ptr<Pending> pending,
                                                     std::optional<KeepAlive> keep_alive) {
  if (self->closed_) co_return std::unexpected(kShuttingDown);
  pending->id = api::RequestId{++self->ids_};
  pending->arrived = Clock::now();
  auto arrived = self->placement_.Arrive(pending->id, pending->spec.key, keep_alive);
  if (!arrived) co_return arrived;
  self->pending_.emplace(pending->id, pending);
  const Attendance attendance(self, pending->id);
  self->AskForPlan();
  while (!pending->answer) {
    const bool waited = co_await pending->answered.Wait();
    if (!waited) co_return std::unexpected(kGone);
  }
  co_return api::Result<void>();
}

Awaitable<api::Result<std::unique_ptr<Generation>>> Dispatcher::Impl::Submit(
    Self self, ModelSpec spec, api::Request request, std::optional<KeepAlive> keep_alive) {
  const auto pending = std::make_shared<Pending>(self->executor_);
  pending->spec = std::move(spec);
  pending->request = std::move(request);
  if (auto answered = co_await Await(self, pending, keep_alive); !answered) {
    co_return std::unexpected(std::move(answered).error());
  }
  co_return *std::move(pending->answer);
}

Awaitable<api::Result<std::chrono::nanoseconds>> Dispatcher::Impl::Load(Self self, ModelSpec spec,
                                                                        std::optional<KeepAlive> keep_alive) {
  const auto pending = std::make_shared<Pending>(self->executor_);
  pending->spec = std::move(spec);
  if (auto answered = co_await Await(self, pending, keep_alive); !answered) {
    co_return std::unexpected(std::move(answered).error());
  }
  if (!*pending->answer) co_return std::unexpected(pending->answer->error());
  co_return pending->waited;
}

Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Impl::Inspect(Self self, std::filesystem::path path,
                                                                      bool verbose) {
  struct Waiting {
    int32_t& count;
    explicit Waiting(int32_t& counted) : count(counted) { ++count; }
    ~Waiting() { --count; }
  };
  if (self->inspections_waiting_ >= std::max(self->limits_.queue_max, 1)) {
    co_return api::Fail(api::ErrorCode::kOverloaded, Placement::kBusy);
  }
  while (!self->closed_ && self->inspections_.size() >= kInspectionsMax) {
    const Waiting waiting(self->inspections_waiting_);
    const bool waited = co_await self->inspections_changed_.Wait();
    if (!waited) co_return std::unexpected(kGone);
  }
  if (self->closed_) co_return std::unexpected(kShuttingDown);
  const auto inspection =
      std::make_shared<Inspection>(self->host_, std::move(path), verbose, self->limits_.inspect_timeout);
  const InspectionPlace place(self, inspection);
  inspection->Start();
  co_return co_await Inspection::Answer(inspection);
}

Awaitable<void> Dispatcher::Impl::Drain(Self self, Clock::time_point deadline) {
  self->closed_ = true;
  self->inspections_changed_.Notify();
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
  plan_timer_.cancel();
  const auto pending = std::exchange(pending_, {});
  for (const auto& [id, waiter] : pending) {
    placement_.Leave(id, Clock::now());
    Answer(*waiter, std::unexpected(kShuttingDown));
  }
  for (const auto& [key, runner] : runners_) runner->Stop(kShuttingDown, at_once);
  for (const auto& inspection : inspections_) inspection->Stop(/*at_once=*/true);
  inspections_changed_.Notify();
  AskForPlan();
}

void Dispatcher::Impl::Unload(const std::string& key) {
  placement_.Unload(key);
  AskForPlan();
}

std::vector<LoadedModel> Dispatcher::Impl::Loaded() const {
  const auto now = Clock::now();
  std::vector<LoadedModel> models;
  for (const Placement::Ready& ready : placement_.ReadyModels(now)) {
    const auto runner = runners_.find(ready.key);
    const auto use = last_use_.find(ready.key);
    if (runner == runners_.end() || use == last_use_.end()) continue;
    LoadedModel model;
    model.spec = use->second.spec;
    model.info = runner->second->info();
    model.num_ctx = use->second.num_ctx;
    model.running = ready.running;
    if (__builtin_add_overflow(model.info.weight_bytes, model.info.cache_bytes, &model.size_bytes)) {
      model.size_bytes = INT64_MAX;
    }
    model.runner_pid = runner->second->pid();
    model.expires_at = WallClock(ready.expires_at, now);
    models.push_back(std::move(model));
  }
  std::ranges::stable_sort(models, [](const LoadedModel& a, const LoadedModel& b) {
    if (!a.expires_at || !b.expires_at) return !a.expires_at && b.expires_at;
    return *a.expires_at > *b.expires_at;
  });
  return models;
}

// ---- plans ----

void Dispatcher::Impl::AskForPlan() {
  if (plan_asked_) return;
  plan_asked_ = true;
  boost::asio::post(executor_, [weak = weak_from_this()] {
    if (const Self self = weak.lock()) self->CarryOutPlan();
  });
}

void Dispatcher::Impl::CarryOutPlan() {
  plan_asked_ = false;
  const Placement::Plan plan = placement_.NextPlan(Clock::now());
  for (const std::string& key : plan.end) {
    if (const auto found = runners_.find(key); found != runners_.end()) {
      found->second->Stop(kUnloaded, /*at_once=*/false);
    }
  }
  for (const Placement::Load& load : plan.load) StartRunner(load);
  for (const api::RequestId id : plan.admit) Admit(id);
  for (const api::RequestId id : plan.refuse) AnswerIfPending(id, kPinned);
  ArmTimer(plan.wake_at);
  requests_changed_.Notify();
}

void Dispatcher::Impl::ArmTimer(std::optional<Placement::Time> wake_at) {
  plan_timer_.cancel();
  if (!wake_at || ended_) return;
  plan_timer_.expires_at(*wake_at);
  plan_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const Self self = weak.lock();
    if (self && !error) self->AskForPlan();
  });
}

void Dispatcher::Impl::StartRunner(const Placement::Load& load) {
  const ModelSpec& spec = pending_.at(load.first)->spec;
  auto runner = std::make_shared<ModelRunner>(
      host_,
      ModelRunner::Job{spec.key, spec.name, spec.path, limits_.threads, limits_.cache_bytes,
                       limits_.reuse_prefixes, limits_.load_timeout},
      weak_from_this());
  runners_[load.key] = runner;
  runner->Start();
}

// The request's turn on its loaded model.
void Dispatcher::Impl::Admit(api::RequestId id) {
  const std::shared_ptr<Pending> pending = pending_.at(id);
  ModelRunner& runner = *runners_.at(pending->spec.key);
  api::Result<std::unique_ptr<Generation>> answer = SubmitTo(runner, *pending);
  if (!answer || !*answer) {
    placement_.Leave(id, Clock::now());
    AskForPlan();
  }
  pending_.erase(id);
  Answer(*pending, std::move(answer));
}

// Null for a bare load.
api::Result<std::unique_ptr<Generation>> Dispatcher::Impl::SubmitTo(ModelRunner& runner,
                                                                    Pending& pending) try {
  const int32_t asked = pending.request ? pending.request->params.num_ctx : 0;
  const int32_t num_ctx = EffectiveContext(asked, limits_.default_num_ctx, runner.info().context_length);
  LastUse& use = last_use_[runner.key()];
  if (pending.request || use.num_ctx == 0) use.num_ctx = num_ctx;
  use.spec = pending.spec;
  if (!pending.request) return nullptr;

  pending.request->params.num_ctx = num_ctx;
  auto stream = runner.Submit(pending.id, *std::move(pending.request));
  if (!stream) return std::unexpected(std::move(stream).error());
  return std::make_unique<RunnerGeneration>(runners_.at(runner.key()), pending.id, *std::move(stream),
                                            Clock::now() - pending.arrived);
} catch (const std::exception& e) {
  return api::Fail(api::ErrorCode::kInternal, std::string("the request could not be sent: ") + e.what());
}

void Dispatcher::Impl::Answer(Pending& pending, api::Result<std::unique_ptr<Generation>> answer) {
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

void Dispatcher::Impl::OnLoaded(ModelRunner& runner) {
  placement_.LoadDone(runner.key(), Clock::now());
  AskForPlan();
}

void Dispatcher::Impl::OnEnding(ModelRunner& runner, const api::Error& why) {
  for (const api::RequestId id : placement_.RunnerEnding(runner.key())) AnswerIfPending(id, why);
  AskForPlan();
}

void Dispatcher::Impl::OnGone(ModelRunner& runner) {
  placement_.RunnerGone(runner.key());
  last_use_.erase(runner.key());
  runners_.erase(runner.key());
  AskForPlan();
}

void Dispatcher::Impl::OnRequestStarted(api::RequestId id) { placement_.Start(id); }

void Dispatcher::Impl::OnRequestEnded(api::RequestId id) {
  placement_.Leave(id, Clock::now());
  AskForPlan();
}

}  // namespace quire::scheduler
