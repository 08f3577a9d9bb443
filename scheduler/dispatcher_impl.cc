#include "scheduler/dispatcher_impl.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <random>
#include <utility>

namespace quire::scheduler {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kInspectionsMax = 4;
constexpr size_t kConversionsMax = 1;  // each uses all cores
constexpr size_t kOpenersMax = 4;      // of them some may hang

// A seed of the daemon's own choosing: the request can then be repeated.
int64_t DrawSeed() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return static_cast<int64_t>(bits & static_cast<uint64_t>(INT64_MAX));
}

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

// A place among the one-shots of a kind; the runner ends with it.
class Dispatcher::Impl::OneShotPlace {
 public:
  OneShotPlace(Self self, OneShots& shots, std::shared_ptr<RunnerSession> session)
      : self_(std::move(self)), shots_(shots), session_(std::move(session)) {
    shots_.running.insert(session_);
  }
  ~OneShotPlace() {
    session_->Stop(/*at_once=*/true);
    shots_.running.erase(session_);
    shots_.changed.Notify();
    self_->requests_changed_.Notify();
  }
  OneShotPlace(const OneShotPlace&) = delete;
  OneShotPlace& operator=(const OneShotPlace&) = delete;

 private:
  const Self self_;
  OneShots& shots_;
  const std::shared_ptr<RunnerSession> session_;
};

class Dispatcher::Impl::OwnedConversion : public Converting {
 public:
  OwnedConversion(const Self& self, std::shared_ptr<Conversion> conversion)
      : conversion_(std::move(conversion)), place_(self, self->conversions_, conversion_) {}
  Awaitable<api::Result<std::optional<float>>> Next() override { return Conversion::Next(conversion_); }

 private:
  const std::shared_ptr<Conversion> conversion_;
  const OneShotPlace place_;
};

Dispatcher::Impl::Impl(const boost::asio::any_io_executor& executor, std::filesystem::path runner_binary,
                       Limits limits)
    : executor_(executor),
      limits_(limits),
      host_{executor, Gate(executor), std::move(runner_binary), limits.stop_grace,
            std::make_shared<boost::asio::thread_pool>(kOpenersMax)},
      placement_({.models_max = limits.loaded_models_max,
                  .queue_max = limits.queue_max,
                  .default_keep_alive = limits.default_keep_alive,
                  .model_queue_max = limits.model_queue_max,
                  .memory_bytes = limits.memory_bytes,
                  .trial_time = limits.trial_time,
                  .queue_timeout = limits.queue_timeout}),
      inspections_(executor, kInspectionsMax),
      conversions_(executor, kConversionsMax),
      requests_changed_(executor),
      plan_timer_(executor) {}

// ---- clients ----

Awaitable<api::Result<void>> Dispatcher::Impl::Await(Self self, std::shared_ptr<Pending> pending,
                                                     std::optional<KeepAlive> keep_alive) {
  if (self->closed_) co_return std::unexpected(kShuttingDown);
  pending->id = api::RequestId{++self->ids_};
  pending->arrived = Clock::now();
  if (pending->request) {
    auto checked = self->refusals_.Check(pending->spec.key, *pending->request, pending->arrived);
    if (!checked) co_return checked;
  }
  auto arrived = self->placement_.Arrive(pending->id, pending->spec.key, keep_alive, pending->arrived);
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

Awaitable<api::Result<void>> Dispatcher::Impl::AwaitPlace(Self self, OneShots& shots) {
  struct Waiting {
    int32_t& count;
    explicit Waiting(int32_t& counted) : count(counted) { ++count; }
    ~Waiting() { --count; }
  };
  if (shots.waiting >= std::max(self->limits_.queue_max, 1)) {
    co_return api::Fail(api::ErrorCode::kOverloaded, Placement::kBusy);
  }
  while (!self->closed_ && shots.running.size() >= shots.running_max) {
    const Waiting waiting(shots.waiting);
    const bool waited = co_await shots.changed.Wait();
    if (!waited) co_return std::unexpected(kGone);
  }
  if (self->closed_) co_return std::unexpected(kShuttingDown);
  co_return api::Result<void>();
}

Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Impl::Inspect(Self self,
                                                                      api::ipc::InspectModel request) {
  if (auto may = co_await AwaitPlace(self, self->inspections_); !may) {
    co_return std::unexpected(std::move(may).error());
  }
  const auto inspection =
      std::make_shared<Inspection>(self->host_, std::move(request), self->limits_.inspect_timeout);
  const OneShotPlace place(self, self->inspections_, inspection);
  inspection->Start();
  co_return co_await Inspection::Answer(inspection);
}

Awaitable<api::Result<std::unique_ptr<Converting>>> Dispatcher::Impl::Convert(
    Self self, api::ipc::ConvertModel request, std::shared_ptr<const void> kept) {
  if (auto may = co_await AwaitPlace(self, self->conversions_); !may) {
    co_return std::unexpected(std::move(may).error());
  }
  auto conversion = std::make_shared<Conversion>(self->host_, std::move(request), std::move(kept),
                                                 self->limits_.convert_patience);
  conversion->Start();
  co_return std::make_unique<OwnedConversion>(self, std::move(conversion));
}

Awaitable<void> Dispatcher::Impl::Drain(Self self, Clock::time_point deadline) {
  self->closed_ = true;
  self->inspections_.changed.Notify();
  self->conversions_.changed.Notify();
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
  placement_.Close();
  plan_timer_.cancel();
  const auto pending = std::exchange(pending_, {});
  for (const auto& [id, waiter] : pending) {
    placement_.Leave(id, Clock::now());
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
  for (OneShots* shots : {&inspections_, &conversions_}) {
    for (const auto& session : shots->running) session->Stop(/*at_once=*/true);
    shots->changed.Notify();
  }
  AskForPlan();
}

void Dispatcher::Impl::Unload(const std::string& key) {
  placement_.Unload(key);
  AskForPlan();
}

std::optional<api::Error> Dispatcher::Impl::Refusal() const {
  if (!placement_.Full()) return std::nullopt;
  return api::Error{api::ErrorCode::kOverloaded, Placement::kBusy};
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
    model.memory_bytes = runner->second->memory_bytes();
    model.beat = runner->second->beat();
    model.load_time = runner->second->load_time();
    model.since_progress = Clock::now() - runner->second->alive_at();
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

Counters Dispatcher::Impl::counters() const {
  const auto name = [](Placement::EndReason reason) {
    switch (reason) {
      case Placement::EndReason::kExpired:
        return "expired";
      case Placement::EndReason::kUnloaded:
        return "unloaded";
      case Placement::EndReason::kPlaces:
        return "places";
      case Placement::EndReason::kMemory:
        return "memory";
      case Placement::EndReason::kTooLarge:
        return "too_large";
      case Placement::EndReason::kCancelled:
        return "cancelled";
    }
    return "";
  };
  Counters counters{.evictions = {}, .restarts = restarts_};
  for (const auto& [reason, count] : placement_.ended()) counters.evictions[name(reason)] = count;
  return counters;
}

// Twice the time after which it is replaced: what replaces it does not work either.
bool Dispatcher::Impl::Stuck() const {
  const auto patience = 2 * limits_.stall_timeout + std::chrono::seconds(1);
  if (limits_.stall_timeout <= limits_.stall_timeout.zero()) return false;
  return std::ranges::any_of(runners_, [&](const auto& entry) {
    return !entry.second->ending() && entry.second->pid() != 0 &&
           Clock::now() - entry.second->alive_at() > patience;
  });
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
  for (const api::RequestId id : plan.expire) Expire(id);
  for (const std::string& key : plan.end) {
    if (const auto found = runners_.find(key); found != runners_.end()) {
      found->second->Stop(kUnloaded, /*at_once=*/false);
    }
  }
  for (const Placement::Load& load : plan.load) StartRunner(load);
  for (const api::RequestId id : plan.admit) Admit(id);
  for (const Placement::Grant& grant : plan.grant) runners_.at(grant.key)->Proceed(grant.cache_bytes);
  for (const api::RequestId id : plan.refuse) FailWith(id, Placement::Ending::kRefused, kPinned);
  for (const Placement::TooLarge& one : plan.too_large) {
    FailWith(one.id, Placement::Ending::kRefused, TooLarge(one.bytes));
  }
  ArmTimer(plan.wake_at);
  requests_changed_.Notify();
}

api::Error Dispatcher::Impl::TooLarge(int64_t bytes) const {
  const int64_t pinned = placement_.pinned_bytes();
  std::string text = fmt::format("the model needs {} bytes of memory, and models may take {} bytes together",
                                 bytes, limits_.memory_bytes);
  if (pinned > 0) text += fmt::format(", of which those kept for ever (keep_alive < 0) have {}", pinned);
  return {api::ErrorCode::kUnavailable, std::move(text)};
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
  const auto waiter = pending_.find(load.first);
  const auto running = running_.find(load.first);
  // Nobody asks for a pinned model that comes back by itself.
  const ModelSpec& spec = waiter != pending_.end()    ? waiter->second->spec
                          : running != running_.end() ? running->second.spec
                                                      : last_use_.at(load.key).spec;
  auto runner = std::make_shared<ModelRunner>(
      host_,
      ModelRunner::Job{spec.key, spec.name, spec.path, spec.go_template, spec.draft_path, limits_.threads,
                       limits_.cache_bytes, limits_.reuse_prefixes, limits_.load_timeout,
                       limits_.stall_timeout},
      weak_from_this());
  runners_[load.key] = runner;
  runner->Start();
}

// The request's turn on its loaded model, the first or another.
void Dispatcher::Impl::Admit(api::RequestId id) {
  if (const auto running = running_.find(id); running != running_.end()) return Resume(id, running->second);
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

  auto stream = std::make_shared<EventStream>(executor_);
  Running running{pending.spec, *std::move(pending.request), stream};
  api::GenerationParams& params = running.request.params;
  running.asked_num_ctx = std::exchange(params.num_ctx, num_ctx);
  running.asked_seed = params.seed;
  if (params.seed < 0) params.seed = DrawSeed();
  if (auto sent = runner.Submit(pending.id, running.request, {}, stream); !sent) {
    return std::unexpected(std::move(sent).error());
  }
  running_.emplace(pending.id, std::move(running));
  return std::make_unique<RunnerGeneration>(weak_from_this(), pending.id, std::move(stream),
                                            Clock::now() - pending.arrived);
} catch (const std::exception& e) {
  return api::Fail(api::ErrorCode::kInternal, std::string("the request could not be sent: ") + e.what());
}

void Dispatcher::Impl::Resume(api::RequestId id, Running& running) {
  ModelRunner& runner = *runners_.at(running.spec.key);
  LastUse& use = last_use_[runner.key()];
  use = {running.spec, running.request.params.num_ctx};
  api::ipc::Resume resume = running.stream->events.ResumePoint();
  spdlog::info("resumed model={} runner_pid={} output_tokens={}", running.spec.name, runner.pid(),
               resume.tokens.size());
  const auto sent = runner.Submit(id, running.request, std::move(resume), running.stream);
  if (sent) return;
  const auto stream = running.stream;
  EndRunning(id);
  stream->Fail(sent.error());
}

// It waited too long; placement_ has forgotten it. A runner that has it, but has not taken it up, need not.
void Dispatcher::Impl::Expire(api::RequestId id) {
  const double seconds = std::chrono::duration<double>(limits_.queue_timeout).count();
  const api::Error error{api::ErrorCode::kOverloaded,
                         fmt::format("server busy, please try again.  the request waited for {} s", seconds)};
  if (const auto found = running_.find(id); found != running_.end()) {
    const auto runner = runners_.find(found->second.spec.key);
    if (runner != runners_.end()) runner->second->Cancel(id);
  }
  FailWith(id, Placement::Ending::kRefused, error);
}

void Dispatcher::Impl::EndRunning(api::RequestId id) {
  running_.erase(id);
  placement_.Leave(id, Clock::now());
  AskForPlan();
}

// A request that placement_ has given up.
void Dispatcher::Impl::FailWith(api::RequestId id, Placement::Ending ending, const api::Error& why) {
  const auto found = running_.find(id);
  if (found == running_.end()) return AnswerIfPending(id, why);
  Running running = std::move(found->second);
  running_.erase(found);
  if (ending != Placement::Ending::kRefused) {
    running.request.params.num_ctx = running.asked_num_ctx;
    running.request.params.seed = running.asked_seed;
    refusals_.Remember(running.spec.key, running.request, Clock::now());
    spdlog::error("request ended one runner after the other and is refused from now on model={} error=\"{}\"",
                  running.spec.name, why.message);
  }
  running.stream->Fail(why);
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

void Dispatcher::Impl::OnMeasured(ModelRunner& runner, Placement::Need need) {
  placement_.Measured(runner.key(), need);
  AskForPlan();
}

void Dispatcher::Impl::OnLoaded(ModelRunner& runner) {
  placement_.LoadDone(runner.key(), Clock::now());
  AskForPlan();
}

void Dispatcher::Impl::OnEnding(ModelRunner& runner, Placement::Ending ending, const api::Error& why) {
  if (ending != Placement::Ending::kRefused) {
    const bool killed = ending == Placement::Ending::kKilled;
    ++restarts_[runner.stalled() ? "stalled" : killed ? "killed" : "crashed"];
  }
  for (const api::RequestId id : placement_.RunnerEnding(runner.key(), ending, Clock::now())) {
    FailWith(id, ending, why);
  }
  AskForPlan();
}

void Dispatcher::Impl::OnGone(ModelRunner& runner) {
  placement_.RunnerGone(runner.key());
  if (!placement_.WantedBack(runner.key())) last_use_.erase(runner.key());
  runners_.erase(runner.key());
  AskForPlan();
}

void Dispatcher::Impl::OnRequestStarted(api::RequestId id) { placement_.Start(id); }

void Dispatcher::Impl::OnRequestProgress(api::RequestId id) {
  placement_.Progress(id);
  AskForPlan();
}

void Dispatcher::Impl::OnRequestEnded(api::RequestId id) { EndRunning(id); }

// ---- answers under way ----

void Dispatcher::Impl::OnClientLeft(api::RequestId id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const auto runner = runners_.find(found->second.spec.key);
  if (runner != runners_.end()) runner->second->Cancel(id);
  EndRunning(id);
}

void Dispatcher::Impl::OnDeltasTaken(api::RequestId id, int32_t deltas) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const auto runner = runners_.find(found->second.spec.key);
  if (runner != runners_.end()) runner->second->GiveCredit(id, deltas);
}

}  // namespace quire::scheduler
