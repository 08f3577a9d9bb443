#include "scheduler/placement.h"

#include <algorithm>
#include <utility>

namespace quire::scheduler {
std::optional<Placement::Time> Placement::ExpiresAt(const Model& model, Time idle_since) {
  if (model.keep_alive < KeepAlive::zero()) return std::nullopt;
  if (model.keep_alive > Time::max() - idle_since) return std::nullopt;
  return idle_since + model.keep_alive;
}

// ---- events ----

api::Result<void> Placement::Arrive(api::RequestId id, const std::string& key,
                                    std::optional<KeepAlive> keep_alive) {
  if (waiting_ >= std::max(options_.queue_max, 1)) return api::Fail(api::ErrorCode::kOverloaded, kBusy);
  requests_.emplace(id, Request{.key = key, .keep_alive = keep_alive});
  models_[key].waiting.push_back(id);
  ++waiting_;
  return {};
}

void Placement::Start(api::RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.admitted || found->second.started) return;
  found->second.started = true;
  --waiting_;
}

// Drops the request's own record; the caller has taken it out of its model.
void Placement::Forget(api::RequestId id) {
  const auto found = requests_.find(id);
  if (!found->second.started) --waiting_;
  requests_.erase(found);
}

void Placement::Leave(api::RequestId id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const auto place = models_.find(found->second.key);
  Model& model = place->second;
  if (found->second.admitted) {
    --model.running;
    model.last_use = ++uses_;
    if (model.running == 0) model.idle_since = now;
  } else {
    std::erase(model.waiting, id);
  }
  Forget(id);
  if (model.state == State::kWanted && model.waiting.empty()) models_.erase(place);
}

void Placement::LoadDone(const std::string& key, Time now) {
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state != State::kLoading) return;
  Model& model = found->second;
  model.state = State::kReady;
  model.fresh = true;
  model.keep_alive = options_.default_keep_alive;
  model.pinned = false;
  model.idle_since = now;
  model.last_use = ++uses_;
}

std::vector<api::RequestId> Placement::RunnerEnding(const std::string& key) {
  std::vector<api::RequestId> lost;
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state == State::kWanted) return lost;
  Model& model = found->second;
  // Who waited through the load is lost with a runner that dies right after it: a model that always does must
  // not be loaded again and again for them.
  if (model.state == State::kLoading || model.fresh) {
    lost.assign(model.waiting.begin(), model.waiting.end());
    model.waiting.clear();
  }
  for (const auto& [id, request] : requests_) {
    if (request.admitted && request.key == key) lost.push_back(id);
  }
  model.running = 0;
  model.fresh = false;
  model.state = State::kEnding;
  for (const api::RequestId id : lost) Forget(id);
  std::ranges::sort(lost);
  return lost;
}

void Placement::RunnerGone(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  if (found->second.waiting.empty()) {
    models_.erase(found);
    return;
  }
  Model wanted;
  wanted.waiting = std::move(found->second.waiting);
  found->second = std::move(wanted);
}

void Placement::Unload(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  if (found->second.state == State::kLoading || found->second.state == State::kReady) {
    found->second.unload_asked = true;
  }
}

// ---- decisions ----

Placement::Plan Placement::NextPlan(Time now) {
  Plan plan;
  EndUnused(now, plan);

  std::vector<Models::iterator> wanted = Wanted();
  const api::RequestId oldest_wanted =
      wanted.empty() ? api::RequestId{UINT64_MAX} : wanted.front()->second.waiting.front();
  // Who waited through a load, or came before anyone who needs room, is let through even if the model must
  // yield.
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    Model& m = model->second;
    const bool first_come = !m.waiting.empty() && m.waiting.front() < oldest_wanted && !m.unload_asked;
    if (m.state == State::kReady && (m.fresh || first_come)) Admit(model, plan);
    m.fresh = false;
    m.yielding = false;
  }
  Place(wanted, plan);
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kReady && !m.unload_asked && !m.yielding) Admit(model, plan);
  }
  for (const auto& [key, model] : models_) {
    if (model.state != State::kReady || !Idle(model)) continue;
    const std::optional<Time> expires_at = ExpiresAt(model, model.idle_since);
    if (expires_at && (!plan.wake_at || *expires_at < *plan.wake_at)) plan.wake_at = expires_at;
  }
  return plan;
}

// Lets through everyone who waits for a ready model. The last one's word on keep-alive counts.
void Placement::Admit(Models::iterator place, Plan& plan) {
  Model& model = place->second;
  for (const api::RequestId id : model.waiting) {
    Request& request = requests_.find(id)->second;
    request.admitted = true;
    ++model.running;
    model.last_use = ++uses_;
    if (request.keep_alive) {
      model.keep_alive = *request.keep_alive;
      model.pinned = *request.keep_alive < KeepAlive::zero();
    }
    plan.admit.push_back(id);
  }
  model.waiting.clear();
}

void Placement::End(Models::iterator model, Plan& plan) {
  model->second.state = State::kEnding;
  plan.end.push_back(model->first);
}

// Ends what nobody needs any more: loads whose clients all left, models asked to unload, models past their
// keep-alive.
void Placement::EndUnused(Time now, Plan& plan) {
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kLoading && m.waiting.empty()) End(model, plan);
    if (m.state != State::kReady || m.running > 0) continue;
    const std::optional<Time> expires_at = ExpiresAt(m, m.idle_since);
    const bool expired = m.waiting.empty() && expires_at && *expires_at <= now;
    const bool owed = m.fresh && !m.waiting.empty();
    if (expired || (m.unload_asked && !owed)) End(model, plan);
  }
}

// Models that need a runner, the one with the oldest request first.
std::vector<Placement::Models::iterator> Placement::Wanted() {
  std::vector<Models::iterator> wanted;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    if (model->second.state == State::kWanted) wanted.push_back(model);
  }
  std::ranges::sort(wanted, {}, [](Models::iterator model) { return model->second.waiting.front(); });
  return wanted;
}

// Gives free places to wanted models in order, and makes room for the others: one place each, counting those
// that are on their way anyway.
void Placement::Place(const std::vector<Models::iterator>& wanted, Plan& plan) {
  const auto count = [this](State state) {
    return std::ranges::count_if(models_, [state](const auto& entry) { return entry.second.state == state; });
  };
  int64_t coming = count(State::kEnding);
  int64_t free = std::max(options_.models_max, 1) - count(State::kLoading) - count(State::kReady) - coming;
  coming += std::ranges::count_if(models_, [](const auto& entry) {
    return entry.second.state == State::kReady && entry.second.unload_asked;
  });
  bool may_come = coming > 0 || free > 0 || count(State::kLoading) > 0;
  for (const Models::iterator model : wanted) {
    if (free > 0) {
      --free;
      model->second.state = State::kLoading;
      plan.load.push_back(Load{model->first, model->second.waiting.front()});
    } else if (coming > 0) {
      --coming;
    } else if (MakeRoom(plan)) {
      may_come = true;
    } else if (!may_come) {
      Refuse(model, plan);
    }
  }
}

// Ends the least recently used idle model, or makes the least recently used busy one yield. False: there is
// none.
bool Placement::MakeRoom(Plan& plan) {
  auto victim = models_.end();
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state != State::kReady || m.pinned || m.unload_asked || m.yielding) continue;
    const auto rank = [](const Model& candidate) { return std::pair(!Idle(candidate), candidate.last_use); };
    if (victim == models_.end() || rank(m) < rank(victim->second)) victim = model;
  }
  if (victim == models_.end()) return false;
  victim->second.yielding = true;
  if (victim->second.running == 0) End(victim, plan);
  return true;
}

void Placement::Refuse(Models::iterator model, Plan& plan) {
  for (const api::RequestId id : model->second.waiting) {
    plan.refuse.push_back(id);
    Forget(id);
  }
  models_.erase(model);
}

// ---- views ----

std::vector<Placement::Ready> Placement::ReadyModels(Time now) const {
  std::vector<Ready> ready;
  for (const auto& [key, model] : models_) {
    if (model.state != State::kReady) continue;
    ready.push_back({key, model.running, ExpiresAt(model, model.running > 0 ? now : model.idle_since)});
  }
  return ready;
}

std::string Placement::CheckInvariants() const {
  int64_t places = 0;
  int64_t placed_requests = 0;
  for (const auto& [key, model] : models_) {
    if (model.state != State::kWanted) ++places;
    if (model.state == State::kWanted && model.waiting.empty())
      return "model " + key + " is wanted by nobody";
    if (model.state != State::kReady && model.running != 0)
      return "model " + key + " runs without being ready";
    placed_requests += std::ssize(model.waiting) + model.running;
    const auto admitted = std::ranges::count_if(
        requests_, [&key](const auto& entry) { return entry.second.admitted && entry.second.key == key; });
    if (admitted != model.running) return "model " + key + " miscounts its running requests";
    for (const api::RequestId id : model.waiting) {
      const auto found = requests_.find(id);
      if (found == requests_.end() || found->second.admitted || found->second.key != key) {
        return "model " + key + " holds a request that does not wait for it";
      }
    }
  }
  if (places > std::max(options_.models_max, 1)) return "more models than places";
  if (placed_requests != std::ssize(requests_)) return "a request is nowhere, or in two places";
  const auto waiting =
      std::ranges::count_if(requests_, [](const auto& entry) { return !entry.second.started; });
  if (waiting != waiting_) return "waiting requests are miscounted";
  if (waiting_ > std::max(options_.queue_max, 1)) return "more waiting requests than queue_max";
  return "";
}

}  // namespace quire::scheduler
