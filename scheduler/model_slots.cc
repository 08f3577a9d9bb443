#include "scheduler/model_slots.h"

#include <limits>
#include <set>
#include <string_view>
#include <tuple>

namespace quire::scheduler {

using State = Model::State;

std::optional<Time> Model::ExpiresAt(Time now, KeepAlive default_keep_alive) const {
  if (const auto claimed = claims.ExpiresAt(now))
    return *claimed == KeepAliveClaims::kNever ? std::nullopt : claimed;
  const bool never = default_keep_alive < KeepAlive::zero() || default_keep_alive > Time::max() - idle_since;
  return never ? std::nullopt : std::optional(idle_since + default_keep_alive);
}

Model* ModelSlots::Find(const std::string& key) {
  const auto found = models_.find(key);
  return found == models_.end() ? nullptr : &found->second;
}

void ModelSlots::EraseIfUnused(const std::string& key) {
  const auto found = models_.find(key);
  if (found != models_.end() && found->second.unused()) models_.erase(found);
}

int32_t ModelSlots::RecordDeath(const std::string& key, Time now) {
  constexpr auto kFirstPause = std::chrono::milliseconds(250);
  constexpr int32_t kDoublingsMax = 7;  // half a minute
  Deaths& deaths = deaths_[key];
  ++deaths.count;
  deaths.retry_at =
      deaths.count == 1 ? now : now + kFirstPause * (1 << std::min(deaths.count - 2, kDoublingsMax));
  return deaths.count;
}

// ---- slots ----

int64_t ModelSlots::CountOf(State state) const {
  return std::ranges::count_if(models_, [state](const auto& entry) { return entry.second.state == state; });
}

void ModelSlots::StartUnload(Models::iterator model, Plan& plan, UnloadReason reason) {
  ++unloads_[reason];
  model->second.state = State::kStopping;
  plan.unload.push_back(model->first);
}

void ModelSlots::UnloadUnused(Time now, Plan& plan) {
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kLoading && m.waiting.empty() && !m.next.pinned)
      StartUnload(model, plan, UnloadReason::kCancelled);
    if (!m.ready() || m.running > 0) continue;
    const std::optional<Time> expires_at = m.ExpiresAt(now, options_.default_keep_alive);
    const bool expired = m.waiting.empty() && expires_at && *expires_at <= now;
    const bool owed = m.load.just_done && !m.waiting.empty();
    if (expired || (m.unload_requested && !owed))
      StartUnload(model, plan, m.unload_requested ? UnloadReason::kUnloaded : UnloadReason::kExpired);
  }
}

std::vector<Models::iterator> ModelSlots::ModelsToLoad(Time now, Plan& plan) {
  std::vector<Models::iterator> to_load;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    if (model->second.state != State::kNotLoaded) continue;
    const auto deaths = deaths_.find(model->first);
    if (deaths != deaths_.end() && deaths->second.retry_at > now) {
      plan.WakeBy(deaths->second.retry_at);
    } else if (MayLoad(model->second)) {
      to_load.push_back(model);
    }
  }
  SortByTurn(to_load);
  return to_load;
}

bool ModelSlots::MayLoad(const Model& model) const {
  if (!model.awaits_free_room()) return true;
  for (const auto& [key, other] : models_) {
    if (other.state == State::kNotLoaded && !other.waiting.empty()) return false;
    if (other.state == State::kLoading && !other.load.granted && options_.memory_bytes > 0) return false;
  }
  const bool has_slot = std::ssize(models_) - CountOf(State::kNotLoaded) < slots();
  const bool has_memory = options_.memory_bytes < 1 ||
                          Granted(/*leaving_only=*/false) + *model.next.gave_room <= options_.memory_bytes;
  return has_slot && has_memory;
}

void ModelSlots::SortByTurn(std::vector<Models::iterator>& models) const {
  if (models.size() < 2) return;
  std::ranges::sort(models, {}, [](Models::iterator model) { return model->second.order(); });
  std::set<std::pair<fair::PartyId, std::string_view>> in_use;  // party, model
  for (const auto& [id, request] : queue_.requests()) {
    const Model& model = models_.find(request.key)->second;
    const bool loading =
        model.state == State::kLoading &&
        std::ranges::none_of(models, [&model](Models::iterator one) { return &one->second == &model; });
    if (request.admitted || model.next.gave_way || loading) in_use.emplace(request.client.party, request.key);
  }
  std::map<fair::PartyId, int32_t> before;  // models of a party, in use and in front
  for (const auto& [party, key] : in_use) ++before[party];
  std::vector<std::pair<int32_t, Models::iterator>> ranked;
  for (const Models::iterator model : models) {
    int32_t rank = std::numeric_limits<int32_t>::max();
    for (const fair::PartyId& party : queue_.PartiesOf(model->second.waiting))
      rank = std::min(rank, before[party]++);
    ranked.emplace_back(rank, model);
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<int32_t, Models::iterator>::first);
  std::ranges::transform(ranked, models.begin(), &std::pair<int32_t, Models::iterator>::second);
}

std::vector<const Model*> ModelSlots::AssignSlots(const std::vector<Models::iterator>& to_load, Time now,
                                                  Plan& plan) {
  int64_t stopping = CountOf(State::kStopping);
  int64_t free = slots() - CountOf(State::kLoading) - CountOf(State::kReady) - stopping;
  std::vector<Model*> leaving = ModelsLeaving();
  std::vector<const Model*> in_need;
  bool may_come = stopping > 0 || !leaving.empty() || free > 0 || CountOf(State::kLoading) > 0;
  for (const Models::iterator position : to_load) {
    Model& model = position->second;
    if (free > 0) {
      --free;
      model.state = State::kLoading;
      model.load.since = now;
      plan.load.push_back({position->first, model.first()});
    } else if (model.awaits_free_room()) {
      continue;
    } else if (stopping > 0) {
      --stopping;
    } else if (!leaving.empty()) {
      leaving.back()->drain.active = true;
      leaving.pop_back();
      in_need.push_back(&model);
    } else if (MakeRoom(model, plan, UnloadReason::kModelLimit) || may_come) {
      may_come = true;
      in_need.push_back(&model);
    } else {
      plan.reject.insert(plan.reject.end(), model.waiting.begin(), model.waiting.end());
      for (const api::RequestId id : model.waiting) queue_.Erase(id);
      models_.erase(position);
    }
  }
  for (const auto& [key, model] : models_) {
    if (model.drain.active && model.unload_requested) in_need.push_back(&model);  // for its own next runner
  }
  return in_need;
}

// Models that run what they have until they are unloaded by name; what has drained longest is last.
std::vector<Model*> ModelSlots::ModelsLeaving() {
  std::vector<Model*> leaving;
  for (auto& [key, model] : models_) {
    if (model.leaves()) leaving.push_back(&model);
  }
  std::ranges::sort(leaving, std::ranges::greater(),
                    [](const Model* model) { return model->drain.since.value_or(Time::max()); });
  return leaving;
}

// Unloads the least recently used idle model, or drains the least recently used busy one. False: there is
// none. A pin that is not an admin's makes no room for itself when its runner has died: it takes what is
// free.
bool ModelSlots::MakeRoom(const Model& for_model, Plan& plan, UnloadReason reason) {
  const KeepAliveClaims::Parties parties = queue_.PartiesOf(for_model.waiting);
  if (parties.empty() && (for_model.next.gave_room || !for_model.claims.IsPinnedByAdmin())) return false;
  // Some of an answer is with its client: no pin keeps it from going on. What it was suspended for may be
  // what is pinned.
  const bool has_begun =
      std::ranges::any_of(for_model.waiting, [this](api::RequestId id) { return queue_.At(id).started; });
  auto victim = models_.end();
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (!m.ready() || m.unload_requested || m.drain.active) continue;
    if (m.claims.IsPinnedAgainst(parties) && !has_begun) continue;
    // One that drains already goes on draining, whatever ends in it meanwhile.
    const auto rank = [&parties](const Model& candidate) {
      return std::tuple(candidate.claims.IsPinnedAgainst(parties),
                        candidate.running > 0 || !candidate.waiting.empty(),
                        !candidate.drain.since.has_value(), candidate.last_use);
    };
    if (victim == models_.end() || rank(m) < rank(victim->second)) victim = model;
  }
  if (victim == models_.end()) return false;
  Model& chosen = victim->second;
  chosen.drain.active = true;
  if (chosen.running > 0) return true;
  if (chosen.claims.IsPinnedAgainst(parties)) chosen.GiveRoom();
  StartUnload(victim, plan, reason);
  return true;
}

// ---- memory ----

// Bytes granted to runners: to all, or to those that stop or drain.
int64_t ModelSlots::Granted(bool leaving_only) const {
  int64_t bytes = 0;
  for (const auto& [key, model] : models_) {
    const bool leaving =
        model.state == State::kStopping || model.leaves() || (model.ready() && model.drain.active);
    if (model.load.granted && (leaving || !leaving_only)) bytes += *model.load.granted;
  }
  return bytes;
}

std::vector<Models::iterator> ModelSlots::AwaitingMemory() {
  std::vector<Models::iterator> awaiting;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    if (model->second.awaits_memory()) awaiting.push_back(model);
  }
  SortByTurn(awaiting);
  return awaiting;
}

void ModelSlots::GrantMemory(Time now, Plan& plan) {
  for (const Models::iterator model : AwaitingMemory()) {
    if (!GrantTo(model, now, plan)) return;
  }
}

// False: it waits for memory that comes free.
bool ModelSlots::GrantTo(Models::iterator position, Time now, Plan& plan) {
  Model& model = position->second;
  const MemoryEstimate estimate = *model.load.estimate;
  const auto grant = [&](int64_t cache) {
    model.load.granted = estimate.fixed_bytes + cache;
    model.load.since = now;  // before, it waited
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
    return entry.second.state == State::kLoading && entry.second.load.granted;
  });
  if (coming > 0) {
    for (Model* leaving : ModelsLeaving()) leaving->drain.active = true;
  }
  if (coming > 0 || loading) return false;
  const int64_t least = estimate.fixed_bytes + estimate.cache_min_bytes;
  if (least <= free) return grant(free - estimate.fixed_bytes);
  RejectTooLarge(position, least, plan);
  return true;
}

void ModelSlots::RejectTooLarge(Models::iterator position, int64_t bytes, Plan& plan) {
  Model& model = position->second;
  int64_t pinned = 0;
  const KeepAliveClaims::Parties parties = queue_.PartiesOf(model.waiting);
  for (const auto& [key, other] : models_)
    pinned += other.claims.IsPinnedAgainst(parties) ? other.load.granted.value_or(0) : 0;
  for (const api::RequestId id : model.waiting) {
    plan.too_large.push_back({id, bytes, pinned});
    queue_.Erase(id);
  }
  model.waiting.clear();
  model.next.pinned = model.next.pinned && model.awaits_free_room();
  StartUnload(position, plan, UnloadReason::kTooLarge);
}

std::string ModelSlots::CheckInvariants() const {
  if (std::ssize(models_) - CountOf(State::kNotLoaded) > slots()) return "more models than model slots";
  const bool overdrawn = options_.memory_bytes > 0 && Granted(/*leaving_only=*/false) > options_.memory_bytes;
  return overdrawn ? "more memory granted than available" : "";
}

}  // namespace quire::scheduler
