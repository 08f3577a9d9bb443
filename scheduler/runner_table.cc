#include "scheduler/runner_table.h"

#include <algorithm>
#include <utility>

#include "api/base/text_bounds.h"
#include "scheduler/clock.h"

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

ModelRunner* RunnerTable::Find(const std::string& key) const {
  const auto found = runners_.find(key);
  return found == runners_.end() ? nullptr : found->second.get();
}

void RunnerTable::Add(std::shared_ptr<ModelRunner> runner, const ModelSpec& spec) {
  last_use_[runner->key()].spec = spec;
  runners_[runner->key()] = std::move(runner);
}

void RunnerTable::CountDeath(const ModelRunner& runner, ExitCause cause) {
  if (cause == ExitCause::kRefused) return;
  ++deaths_[runner.stalled() ? "stalled" : cause == ExitCause::kKilled ? "killed" : "crashed"];
}

void RunnerTable::StopAll(const api::Error& why, bool at_once) {
  for (const auto& [key, runner] : runners_) runner->Stop(why, at_once);
}

int32_t RunnerTable::EffectiveContext(int32_t asked, const api::ipc::ModelInfo& info) const {
  const int32_t wanted = asked > 0                     ? asked
                         : limits_.default_num_ctx > 0 ? limits_.default_num_ctx
                                                       : info.num_ctx;
  return info.context_length > 0 && wanted > info.context_length ? info.context_length : wanted;
}

std::optional<api::Error> RunnerTable::CheckTexts(const api::Request& request, const RequestSize& size,
                                                  const api::ipc::ModelInfo* info) const {
  const int32_t asked = request.params.num_ctx;
  if (request.prompt_only || (info == nullptr && asked < 1)) return std::nullopt;
  static const api::ipc::ModelInfo kUnknown;
  const api::ipc::ModelInfo& known = info == nullptr ? kUnknown : *info;
  const int32_t num_ctx = EffectiveContext(asked, known);
  const api::TextBounds bounds = api::TextBoundsFor(num_ctx, request.overflow);
  if (size.texts <= bounds.bytes) return std::nullopt;
  return api::WithContextOptions(api::ExceedsBounds(bounds, num_ctx), num_ctx, known.context_length,
                                 known.num_ctx);
}

// ---- views ----

std::vector<LoadedModel> RunnerTable::Loaded(const std::vector<Scheduler::Ready>& ready) const {
  const auto now = Clock::now();
  std::vector<LoadedModel> models;
  for (const Scheduler::Ready& one : ready) {
    const ModelRunner* runner = Find(one.key);
    const auto use = last_use_.find(one.key);
    if (runner == nullptr || use == last_use_.end()) continue;
    LoadedModel model;
    model.spec = use->second.spec;
    model.loaded_as = runner->model();
    model.info = runner->info();
    model.info.num_ctx = EffectiveContext(0, model.info);
    model.num_ctx = use->second.num_ctx > 0 ? use->second.num_ctx : model.info.num_ctx;
    model.running = one.running;
    if (__builtin_add_overflow(model.info.weight_bytes, model.info.cache_bytes, &model.size_bytes)) {
      model.size_bytes = INT64_MAX;
    }
    model.memory_bytes = runner->load().memory_bytes();
    model.heartbeat = runner->liveness().heartbeat();
    model.load_time = runner->load().time();
    model.since_progress = now - runner->liveness().last_activity();
    model.runner_pid = runner->pid();
    model.expires_at = WallClock(one.expires_at, now);
    models.push_back(std::move(model));
  }
  std::ranges::stable_sort(models, [](const LoadedModel& a, const LoadedModel& b) {
    if (!a.expires_at || !b.expires_at) return !a.expires_at && b.expires_at;
    return *a.expires_at > *b.expires_at;
  });
  return models;
}

std::vector<LoadingModel> RunnerTable::Loading() const {
  std::vector<LoadingModel> models;
  for (const auto& [key, runner] : runners_) {
    if (!runner->loading()) continue;
    const api::ipc::LoadProgress& progress = runner->load().progress();
    LoadingModel& model = models.emplace_back();
    model.spec.key = key;
    model.spec.name = runner->model();
    model.fraction = progress.fraction;
    model.stage = progress.stage;
    model.runner_pid = runner->pid();
  }
  return models;
}

// Twice the stall timeout: replacing the runner did not work either.
bool RunnerTable::Stuck(Time now) const {
  const auto patience = 2 * limits_.stall_timeout + std::chrono::seconds(1);
  if (limits_.stall_timeout <= limits_.stall_timeout.zero()) return false;
  return std::ranges::any_of(runners_, [&](const auto& entry) {
    return !entry.second->stopping() && entry.second->pid() != 0 &&
           now - entry.second->liveness().last_activity() > patience;
  });
}

std::string RunnerTable::CheckInvariants() const {
  if (std::ssize(runners_) > std::max(limits_.models_max, 1)) return "more runners than model slots";
  for (const auto& [key, runner] : runners_) {
    if (!last_use_.contains(key)) return "nobody knows how to restart the runner of " + key;
  }
  return "";
}

Awaitable<void> RunnerTable::InspectEngines(Time until) {
  for (const auto& [key, runner] : runners_) {
    if (runner->loaded()) runner->views().InspectEngine();
  }
  return AwaitEngines(runners_, until);
}

Awaitable<void> RunnerTable::AwaitEngines(Runners runners, Time until) {
  for (const auto& [key, runner] : runners) {
    while (runner->views().engine_to_answer() && Clock::now() < until) {
      const bool waited = co_await runner->views().engine_answered().Wait(until);
      if (!waited) co_return;
    }
  }
}

std::vector<EngineView> RunnerTable::Engines() const {
  const auto now = Clock::now();
  std::vector<EngineView> views;
  for (const auto& [key, runner] : runners_) {
    const api::ipc::EngineInspected* engine = runner->views().engine(now);
    const auto use = last_use_.find(key);
    if (engine == nullptr || use == last_use_.end() || runner->stopping()) continue;
    EngineView& view = views.emplace_back();
    view.spec = use->second.spec;
    view.runner_pid = runner->pid();
    view.engine = *engine;
    view.owners.reserve(engine->sequences.size());
    for (const api::ipc::InspectedSequence& sequence : engine->sequences) {
      EngineView::Origin& owner = view.owners.emplace_back();
      const auto running = requests_.running.find(sequence.id);
      if (running == requests_.running.end()) continue;
      owner = {running->second.request.client.exchange, running->second.request.client.party.weight()};
    }
  }
  return views;
}

Awaitable<api::Result<CacheView>> RunnerTable::InspectCache(const std::string& key,
                                                            api::ipc::InspectCache question,
                                                            int known_pid) const {
  ModelRunner* runner = Find(key);
  if (runner == nullptr || !runner->loaded())
    return AwaitCache(0, api::Fail(api::ErrorCode::kNotFound, "the model is not loaded", "model"));
  if (runner->pid() != known_pid) question.known_version = 0;
  return AwaitCache(runner->pid(), runner->views().InspectCache(std::move(question)));
}

Awaitable<api::Result<CacheView>> RunnerTable::AwaitCache(
    int pid, api::Result<std::shared_ptr<RunnerViews::CacheAnswer>> asked) {
  if (!asked) co_return std::unexpected(std::move(asked).error());
  const std::shared_ptr<RunnerViews::CacheAnswer> answer = *std::move(asked);
  while (!answer->answer) {
    const bool waited = co_await answer->changed.Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  if (!*answer->answer) co_return std::unexpected(answer->answer->error());
  co_return CacheView{pid, **std::move(answer->answer)};
}

}  // namespace quire::scheduler
