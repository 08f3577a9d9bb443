// The dispatcher's side of views: which runner is asked, and whose requests its answer is about.

#include <algorithm>
#include <utility>

#include "scheduler/dispatcher_impl.h"

namespace quire::scheduler {

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
      EngineView::Owner& owner = view.owners.emplace_back();
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
