// The scheduler's decisions about memory: which loads are granted how much of it.

#include <algorithm>

#include "scheduler/scheduler.h"

namespace quire::scheduler {

// Bytes granted to runners: to all, or to those that stop or drain.
int64_t Scheduler::Granted(bool leaving_only) const {
  int64_t bytes = 0;
  for (const auto& [key, model] : models_) {
    const bool leaving = model.state == State::kStopping ||
                         (model.state == State::kReady && (model.unload_requested || model.draining));
    if (model.granted && (leaving || !leaving_only)) bytes += *model.granted;
  }
  return bytes;
}

// Loads with a memory estimate and no grant, in the order in which they get it.
std::vector<Scheduler::Models::iterator> Scheduler::AwaitingMemory() {
  std::vector<Models::iterator> awaiting;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kLoading && m.estimate && !m.granted) awaiting.push_back(model);
  }
  SortByTurn(awaiting);
  return awaiting;
}

// In their order, so that small models do not starve a large one.
void Scheduler::GrantMemory(Time now, Plan& plan) {
  for (const Models::iterator model : AwaitingMemory()) {
    if (!GrantTo(model, now, plan)) return;
  }
}

// False: it waits for memory that comes free.
bool Scheduler::GrantTo(Models::iterator position, Time now, Plan& plan) {
  Model& model = position->second;
  const MemoryEstimate estimate = *model.estimate;
  const auto grant = [&](int64_t cache) {
    model.granted = estimate.fixed_bytes + cache;
    model.loading_since = now;  // before, it waited
    plan.grants.push_back({position->first, cache});
    return true;
  };
  if (options_.memory_bytes < 1) return grant(estimate.cache_bytes);
  const int64_t free = options_.memory_bytes - Granted(/*leaving_only=*/false);
  // Smaller caches, down to a quarter, are better than unloading another model.
  const int64_t enough = estimate.fixed_bytes + std::max(estimate.cache_min_bytes, estimate.cache_bytes / 4);
  if (enough <= free) return grant(std::min(estimate.cache_bytes, free - estimate.fixed_bytes));
  int64_t coming = Granted(/*leaving_only=*/true);
  while (enough > free + coming && MakeRoom(model, plan, UnloadReason::kMemory))
    coming = Granted(/*leaving_only=*/true);
  const bool loading = std::ranges::any_of(models_, [](const auto& entry) {
    return entry.second.state == State::kLoading && entry.second.granted;
  });
  if (coming > 0) {
    for (Model* leaving : ModelsLeaving()) leaving->draining = true;
  }
  if (coming > 0 || loading) return false;
  const int64_t least = estimate.fixed_bytes + estimate.cache_min_bytes;
  if (least <= free) return grant(free - estimate.fixed_bytes);
  int64_t pinned = 0;
  const KeepAliveClaims::Parties parties = PartiesOf(model);
  for (const auto& [key, other] : models_)
    pinned += other.claims.IsPinnedAgainst(parties) ? other.granted.value_or(0) : 0;
  for (const api::RequestId id : model.waiting) {
    plan.too_large.push_back({id, least, pinned});
    EraseRequest(id);
  }
  model.waiting.clear();
  model.restart_pinned = model.restart_pinned && AwaitsFreeRoom(model);
  StartUnload(position, plan, UnloadReason::kTooLarge);
  return true;
}

}  // namespace quire::scheduler
