// The dispatcher's side of views: what runs, which runner is asked, and whose requests its answer is about.

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "scheduler/dispatcher_impl.h"

namespace quire::scheduler {
namespace {

std::optional<std::chrono::system_clock::time_point> WallClock(std::optional<Clock::time_point> at,
                                                               Clock::time_point now) {
  if (!at) return std::nullopt;
  const auto wall_now = std::chrono::system_clock::now();
  if (*at - now > std::chrono::system_clock::time_point::max() - wall_now) return std::nullopt;
  return wall_now + std::chrono::duration_cast<std::chrono::system_clock::duration>(*at - now);
}

}  // namespace

std::vector<LoadedModel> Dispatcher::Impl::Loaded() const {
  const auto now = Clock::now();
  std::vector<LoadedModel> models;
  for (const Scheduler::Ready& ready : scheduler_.ReadyModels(now)) {
    const auto runner = runners_.find(ready.key);
    const auto use = last_use_.find(ready.key);
    if (runner == runners_.end() || use == last_use_.end()) continue;
    LoadedModel model;
    model.spec = use->second.spec;
    model.loaded_as = runner->second->model();
    model.info = runner->second->info();
    model.info.num_ctx = EffectiveContext(0, limits_.default_num_ctx, model.info);
    model.num_ctx = use->second.num_ctx > 0 ? use->second.num_ctx : model.info.num_ctx;
    model.running = ready.running;
    if (__builtin_add_overflow(model.info.weight_bytes, model.info.cache_bytes, &model.size_bytes)) {
      model.size_bytes = INT64_MAX;
    }
    model.memory_bytes = runner->second->memory_bytes();
    model.heartbeat = runner->second->heartbeat();
    model.load_time = runner->second->load_time();
    model.since_progress = Clock::now() - runner->second->last_activity();
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

std::vector<LoadingModel> Dispatcher::Impl::Loading() const {
  std::vector<LoadingModel> models;
  for (const auto& [key, runner] : runners_) {
    auto progress = runner->load_progress();
    if (!progress) continue;
    LoadingModel& model = models.emplace_back();
    model.spec.key = key;
    model.spec.name = runner->model();
    model.fraction = progress->fraction;
    model.stage = std::move(progress->stage);
    model.runner_pid = runner->pid();
  }
  return models;
}

Counters Dispatcher::Impl::counters() const {
  const auto name = [](UnloadReason reason) {
    switch (reason) {
      case UnloadReason::kExpired:
        return "expired";
      case UnloadReason::kUnloaded:
        return "unloaded";
      case UnloadReason::kModelLimit:
        return "model_limit";
      case UnloadReason::kMemory:
        return "memory";
      case UnloadReason::kTooLarge:
        return "too_large";
      case UnloadReason::kSuspended:
        return "suspended";
      case UnloadReason::kCancelled:
        return "cancelled";
    }
    return "";
  };
  Counters counters{.evictions = {}, .restarts = restarts_};
  for (const auto& [reason, count] : scheduler_.unloads()) counters.evictions[name(reason)] = count;
  return counters;
}

// Twice the stall timeout: replacing the runner did not work either.
bool Dispatcher::Impl::Stuck(Clock::time_point now) const {
  const auto patience = 2 * limits_.stall_timeout + std::chrono::seconds(1);
  if (limits_.stall_timeout <= limits_.stall_timeout.zero()) return false;
  return std::ranges::any_of(runners_, [&](const auto& entry) {
    return !entry.second->stopping() && entry.second->pid() != 0 &&
           now - entry.second->last_activity() > patience;
  });
}

std::string Dispatcher::Impl::CheckInvariants() const {
  if (std::string broken = scheduler_.CheckInvariants(); !broken.empty()) return broken;
  if (std::ssize(pending_) + std::ssize(running_) != scheduler_.requests())
    return "the dispatcher and the scheduler know different requests";
  for (const auto& [id, pending] : pending_) {
    if (running_.contains(id)) return "a request is pending and running";
    if (pending->answer) return "a request has its answer and is still pending";
  }
  if (std::ssize(runners_) > std::max(limits_.loaded_models_max, 1)) return "more runners than model slots";
  for (const auto& [key, runner] : runners_) {
    if (!last_use_.contains(key)) return "nobody knows how to restart the runner of " + key;
  }
  return "";
}

Awaitable<void> Dispatcher::Impl::InspectEngines(Self self, std::chrono::steady_clock::time_point until) {
  for (const auto& [key, runner] : self->runners_) runner->InspectEngine();
  const auto to_answer = [&self] {
    return std::ranges::any_of(self->runners_,
                               [](const auto& entry) { return entry.second->engine_to_answer(); });
  };
  while (to_answer() && Clock::now() < until) {
    const bool waited = co_await self->engines_changed_.Wait(until);
    if (!waited) co_return;
  }
}

std::vector<EngineView> Dispatcher::Impl::Engines() const {
  const auto now = Clock::now();
  std::vector<EngineView> views;
  for (const auto& [key, runner] : runners_) {
    const api::ipc::EngineInspected* engine = runner->engine(now);
    const auto use = last_use_.find(key);
    if (engine == nullptr || use == last_use_.end() || runner->stopping()) continue;
    EngineView& view = views.emplace_back();
    view.spec = use->second.spec;
    view.runner_pid = runner->pid();
    view.engine = *engine;
    view.owners.reserve(engine->sequences.size());
    for (const api::ipc::InspectedSequence& sequence : engine->sequences) {
      EngineView::Origin& owner = view.owners.emplace_back();
      const auto running = running_.find(sequence.id);
      if (running == running_.end()) continue;
      owner = {running->second.request.client.exchange, running->second.request.client.weight};
    }
  }
  return views;
}

Awaitable<api::Result<CacheView>> Dispatcher::Impl::InspectCache(Self self, std::string key,
                                                                 api::ipc::InspectCache question,
                                                                 int known_pid) {
  const auto found = self->runners_.find(key);
  if (found == self->runners_.end() || !found->second->loaded()) {
    co_return api::Fail(api::ErrorCode::kNotFound, "the model is not loaded", "model");
  }
  const std::shared_ptr<ModelRunner> runner = found->second;
  if (runner->pid() != known_pid) question.known_version = 0;
  auto asked = runner->InspectCache(std::move(question));
  if (!asked) co_return std::unexpected(std::move(asked).error());
  const std::shared_ptr<ModelRunner::CacheAnswer> answer = *std::move(asked);
  while (!answer->answer) {
    const bool waited = co_await answer->changed.Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  if (!*answer->answer) co_return std::unexpected(answer->answer->error());
  co_return CacheView{runner->pid(), **std::move(answer->answer)};
}

}  // namespace quire::scheduler
