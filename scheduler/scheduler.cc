#include "scheduler/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace quire::scheduler {
// Nothing: never. Of a model that nobody has used since its load the default counts.
std::optional<Scheduler::Time> Scheduler::ExpiresAt(const Model& model, Time now) const {
  if (const auto claimed = model.claims.ExpiresAt(now)) {
    return *claimed == KeepAliveClaims::kNever ? std::nullopt : claimed;
  }
  const KeepAlive keep_alive = options_.default_keep_alive;
  const bool never = keep_alive < KeepAlive::zero() || keep_alive > Time::max() - model.idle_since;
  return never ? std::nullopt : std::optional(model.idle_since + keep_alive);
}

// That wait for the model.
KeepAliveClaims::Parties Scheduler::PartiesOf(const Model& model) const {
  KeepAliveClaims::Parties parties;
  for (const api::RequestId id : model.waiting) parties.insert(requests_.find(id)->second.party);
  return parties;
}

// ---- events ----

api::Result<void> Scheduler::Enqueue(api::RequestId id, const std::string& key,
                                     std::optional<KeepAliveClaim> keep_alive, Time now,
                                     const std::string& party, AnswerLength length,
                                     const std::string& member) {
  if (!places_.HasRoom(key, party, length)) return api::Fail(api::ErrorCode::kOverloaded, kBusy);
  Request request{.key = key, .party = party, .member = member, .length = length, .keep_alive = keep_alive};
  const bool bounded =
      options_.queue_timeout > KeepAlive::zero() && options_.queue_timeout < Time::max() - now;
  if (bounded) request.give_up_at = now + options_.queue_timeout;
  newest_ = std::max(newest_, id);
  requests_.emplace(id, std::move(request));
  Model& model = models_[key];
  model.waiting.push_back(id);
  if (model.unload_by && *model.unload_by != party) {
    model.unload_requested = false;
    model.unload_by.reset();
  }
  places_.Add(key, party, length);
  return {};
}

void Scheduler::Start(api::RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.started) return;
  found->second.started = true;
  found->second.give_up_at.reset();
  places_.Remove(found->second.key, found->second.party, found->second.length);
}

void Scheduler::Progress(api::RequestId id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.admitted) return;
  Request& request = found->second;
  if (!request.progressed_at) request.progressed_at = now;
  Model& model = models_.at(request.key);
  model.in_turn.erase(id);
  request.quarantined = false;
  request.probation_failures = 0;
  request.unexplained_deaths = 0;
  request.tried_first = false;
  deaths_.erase(request.key);
}

// Erases the request's record; the caller has removed it from its model.
void Scheduler::EraseRequest(api::RequestId id) {
  const auto found = requests_.find(id);
  if (!found->second.started) places_.Remove(found->second.key, found->second.party, found->second.length);
  requests_.erase(found);
}

void Scheduler::Remove(api::RequestId id, Time now) {
  if (requests_.contains(id)) RemoveExisting(id, now);
}

void Scheduler::Abandon(api::RequestId id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  RecordDeparture(found->second, now);
  RemoveExisting(id, now);
}

void Scheduler::RemoveExisting(api::RequestId id, Time now) {
  const Request& request = requests_.at(id);
  const auto position = models_.find(request.key);
  Model& model = position->second;
  if (request.admitted) {
    --model.running;
    model.claims.End(request.party, now);
    model.last_use = ++uses_;
    if (model.running == 0) model.idle_since = now;
    model.in_turn.erase(id);
  } else {
    std::erase(model.waiting, id);
  }
  EraseRequest(id);
  if (model.state == State::kNotLoaded && model.waiting.empty() && !model.restart_pinned)
    models_.erase(position);
}

void Scheduler::OnMemoryEstimate(const std::string& key, MemoryEstimate estimate) {
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state != State::kLoading) return;
  found->second.estimate = estimate;
}

void Scheduler::LoadDone(const std::string& key, Time now) {
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state != State::kLoading) return;
  Model& model = found->second;
  model.state = State::kReady;
  model.just_loaded = true;
  if (!model.restarted) model.claims = {};
  model.restart_pinned = false;
  model.gave_room.reset();
  model.loads_as.reset();
  model.suspension = 0;
  model.idle_since = now;
  model.paid_off_at = now + (now - model.loading_since);
  model.last_use = ++uses_;
}

void Scheduler::RunnerReaped(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  if (found->second.waiting.empty() && !found->second.restart_pinned) {
    models_.erase(found);
    return;
  }
  Model next;
  next.waiting = std::move(found->second.waiting);
  next.last_probations = std::move(found->second.last_probations);
  next.restart_pinned = found->second.restart_pinned;
  next.loads_as = found->second.loads_as;
  next.suspension = found->second.suspension;
  next.gave_way = next.loads_as.has_value();
  next.gave_room = found->second.gave_room;
  const bool unloaded_for_all = found->second.unload_requested && !found->second.unload_by;
  if ((deaths_.contains(key) || next.loads_as || next.gave_room) && !unloaded_for_all) {
    next.restarted = true;
    next.claims = std::move(found->second.claims);
  }
  found->second = std::move(next);
}

void Scheduler::Unload(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  if (found->second.state == State::kLoading || found->second.state == State::kReady) {
    found->second.unload_requested = true;
    found->second.unload_by.reset();
  } else {
    found->second.claims = {};
  }
  CancelRestart(found);
}

void Scheduler::EndClaim(const std::string& key, const std::string& party, Time now) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  Model& model = found->second;
  model.claims.Release(party);
  const auto waiting = PartiesOf(model);
  const bool waited_for = waiting.size() > 1 || (waiting.size() == 1 && *waiting.begin() != party);
  if (!model.claims.HasOther(party, now) && !waited_for) {
    const bool unloads_later = model.state == State::kLoading || model.state == State::kReady;
    if (unloads_later && !model.unload_requested) {
      model.unload_requested = true;
      model.unload_by = party;
    }
    CancelRestart(found);
  } else if (!model.claims.IsPinned()) {
    CancelRestart(found);
  }
}

void Scheduler::CancelRestart(Models::iterator model) {
  model->second.restart_pinned = false;
  if (model->second.state == State::kNotLoaded && model->second.waiting.empty()) models_.erase(model);
}

void Scheduler::Close() {
  closed_ = true;
  for (auto& [key, model] : models_) model.restart_pinned = false;
  std::erase_if(models_, [](const auto& entry) {
    return entry.second.state == State::kNotLoaded && entry.second.waiting.empty();
  });
}

// ---- decisions ----

// The first request of models.
api::RequestId Scheduler::OldestOf(const std::vector<Models::iterator>& models) {
  api::RequestId oldest = kNoRequest;
  for (const Models::iterator model : models) oldest = std::min(oldest, OrderOf(model->second).first);
  return oldest;
}

Scheduler::Plan Scheduler::NextPlan(Time now) {
  Plan plan;
  Expire(now, plan);
  UnloadUnused(now, plan);

  std::vector<Models::iterator> to_load = ModelsToLoad(now, plan);
  const api::RequestId oldest_to_load = std::min(OldestOf(to_load), OldestOf(AwaitingMemory()));
  // Requests that waited for a load, or arrived before any request that needs room, are admitted even if the
  // model must drain.
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    Model& m = model->second;
    const bool first_come = !m.waiting.empty() && m.waiting.front() < oldest_to_load && !m.unload_requested;
    if (m.state == State::kReady && (m.just_loaded || first_come)) Admit(model, now, plan);
    m.just_loaded = false;
    // A model unloaded by name drains for its own next requests as it does for another model.
    m.draining = m.state == State::kReady && m.unload_requested && !m.waiting.empty();
  }
  std::vector<const Model*> in_need = AssignSlots(to_load, now, plan);
  GrantMemory(now, plan);
  for (const Models::iterator model : AwaitingMemory()) in_need.push_back(&model->second);
  const Waiters waiters = WaitersFor(in_need, now);
  PassTurnsOn(now);
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    SuspendIfOverdue(model, waiters, now, plan);
    const Model& m = model->second;
    if (m.state == State::kReady && !m.unload_requested && !m.draining) Admit(model, now, plan);
  }
  for (auto& [key, model] : models_) {
    model.gave_way = false;
    if (!model.in_turn.empty() && !model.waiting.empty() && model.turn_ends > now)
      WakeBy(model.turn_ends, plan);
    if (model.state != State::kReady || !Idle(model)) continue;
    if (const auto expires_at = ExpiresAt(model, now)) WakeBy(*expires_at, plan);
  }
  return plan;
}

void Scheduler::WakeBy(Time time, Plan& plan) {
  if (!plan.wake_at || time < *plan.wake_at) plan.wake_at = time;
}

void Scheduler::Expire(Time now, Plan& plan) {
  if (options_.queue_timeout <= KeepAlive::zero()) return;
  for (const auto& [id, request] : requests_) {
    if (!request.give_up_at) continue;
    if (*request.give_up_at <= now) {
      plan.expire.push_back(id);
    } else {
      WakeBy(*request.give_up_at, plan);
    }
  }
  std::ranges::sort(plan.expire);
  for (const api::RequestId id : plan.expire) Abandon(id, now);
}

void Scheduler::StartUnload(Models::iterator model, Plan& plan, UnloadReason reason) {
  ++unloads_[reason];
  model->second.state = State::kStopping;
  plan.unload.push_back(model->first);
}

// Unloads unused models: loads whose clients all disconnected, models to be unloaded by name, models past
// their keep-alive.
void Scheduler::UnloadUnused(Time now, Plan& plan) {
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kLoading && m.waiting.empty() && !m.restart_pinned) {
      StartUnload(model, plan, UnloadReason::kCancelled);
    }
    if (m.state != State::kReady || m.running > 0) continue;
    const std::optional<Time> expires_at = ExpiresAt(m, now);
    const bool expired = m.waiting.empty() && expires_at && *expires_at <= now;
    const bool owed = m.just_loaded && !m.waiting.empty();
    if (expired || (m.unload_requested && !owed)) {
      StartUnload(model, plan, m.unload_requested ? UnloadReason::kUnloaded : UnloadReason::kExpired);
    }
  }
}

// Models that need a runner, in the order in which they get one.
std::vector<Scheduler::Models::iterator> Scheduler::ModelsToLoad(Time now, Plan& plan) {
  std::vector<Models::iterator> to_load;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    if (model->second.state != State::kNotLoaded) continue;
    const auto deaths = deaths_.find(model->first);
    if (deaths != deaths_.end() && deaths->second.retry_at > now) {
      WakeBy(deaths->second.retry_at, plan);
    } else if (MayLoad(model->second)) {
      to_load.push_back(model);
    }
  }
  SortByTurn(to_load);
  return to_load;
}

// Assigns free model slots in order and makes room for the other models: one slot each, counting slots that
// become free anyway. Returns the models for which another one must go.
std::vector<const Scheduler::Model*> Scheduler::AssignSlots(const std::vector<Models::iterator>& to_load,
                                                            Time now, Plan& plan) {
  const auto count = [this](State state) {
    return std::ranges::count_if(models_, [state](const auto& entry) { return entry.second.state == state; });
  };
  int64_t stopping = count(State::kStopping);
  int64_t free = std::max(options_.models_max, 1) - count(State::kLoading) - count(State::kReady) - stopping;
  std::vector<Model*> leaving = ModelsLeaving();
  std::vector<const Model*> in_need;
  bool may_come = stopping > 0 || !leaving.empty() || free > 0 || count(State::kLoading) > 0;
  for (const Models::iterator model : to_load) {
    if (free > 0) {
      --free;
      model->second.state = State::kLoading;
      model->second.loading_since = now;
      plan.load.push_back(Load{model->first, FirstOf(model->second)});
    } else if (AwaitsFreeRoom(model->second)) {
      continue;
    } else if (stopping > 0) {
      --stopping;
    } else if (!leaving.empty()) {
      leaving.back()->draining = true;
      leaving.pop_back();
      in_need.push_back(&model->second);
    } else if (MakeRoom(model->second, plan, UnloadReason::kModelLimit) || may_come) {
      may_come = true;
      in_need.push_back(&model->second);
    } else {
      Reject(model, plan);
    }
  }
  for (const auto& [key, model] : models_) {
    if (model.draining && model.unload_requested) in_need.push_back(&model);  // for its own next runner
  }
  return in_need;
}

// Models that run what they have until they are unloaded by name; what has drained longest is last.
std::vector<Scheduler::Model*> Scheduler::ModelsLeaving() {
  std::vector<Model*> leaving;
  for (auto& [key, model] : models_) {
    if (model.state == State::kReady && model.unload_requested) leaving.push_back(&model);
  }
  std::ranges::sort(leaving, std::ranges::greater(),
                    [](const Model* model) { return model->draining_since.value_or(Time::max()); });
  return leaving;
}

void Scheduler::Reject(Models::iterator model, Plan& plan) {
  for (const api::RequestId id : model->second.waiting) {
    plan.reject.push_back(id);
    EraseRequest(id);
  }
  models_.erase(model);
}

// ---- views ----

bool Scheduler::WillRestart(const std::string& key) const {
  const auto found = models_.find(key);
  return found != models_.end() && found->second.restart_pinned;
}

std::vector<Scheduler::Ready> Scheduler::ReadyModels(Time now) const {
  std::vector<Ready> ready;
  for (const auto& [key, model] : models_) {
    if (model.state != State::kReady) continue;
    ready.push_back({key, model.running, ExpiresAt(model, now)});
  }
  return ready;
}

std::string Scheduler::CheckInvariants() const {
  int64_t slots = 0;
  int64_t counted_requests = 0;
  for (const auto& [key, model] : models_) {
    if (model.state != State::kNotLoaded) ++slots;
    if (model.state == State::kNotLoaded && model.waiting.empty() && !model.restart_pinned)
      return "model " + key + " is not loaded and has no waiting request";
    if (model.state != State::kReady && model.running != 0)
      return "model " + key + " has running requests but is not ready";
    if (model.claims.running() != model.running)
      return "model " + key + " counts running requests that its parties do not have";
    counted_requests += std::ssize(model.waiting) + model.running;
    const auto admitted = std::ranges::count_if(
        requests_, [&key](const auto& entry) { return entry.second.admitted && entry.second.key == key; });
    if (admitted != model.running) return "model " + key + " has a wrong count of running requests";
    for (const api::RequestId id : model.in_turn) {
      const auto found = requests_.find(id);
      if (found == requests_.end() || !found->second.admitted || found->second.key != key)
        return "model " + key + " waits for a request that it does not run";
    }
    if (!std::ranges::is_sorted(model.waiting)) return "model " + key + " queues its requests out of order";
    for (const api::RequestId id : model.waiting) {
      const auto found = requests_.find(id);
      if (found == requests_.end() || found->second.admitted || found->second.key != key) {
        return "model " + key + " queues a request that does not wait for it";
      }
    }
  }
  if (slots > std::max(options_.models_max, 1)) return "more models than model slots";
  if (options_.memory_bytes > 0 && Granted(/*leaving_only=*/false) > options_.memory_bytes) {
    return "more memory granted than available";
  }
  if (counted_requests != std::ssize(requests_)) return "a request is in no state, or in two";
  QueuePlaces taken(options_.queue_max, options_.model_queue_max);
  for (const auto& [id, request] : requests_) {
    if (!request.started) taken.Add(request.key, request.party, request.length);
  }
  if (!taken.HasCountsOf(places_)) return "wrong count of waiting requests";
  if (taken.IsOverfull()) return "more waiting requests than places";
  return "";
}

}  // namespace quire::scheduler
