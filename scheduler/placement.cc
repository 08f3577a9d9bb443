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
                                    std::optional<KeepAlive> keep_alive, Time now) {
  if (Full() || (options_.model_queue_max > 0 && QueuedFor(key) >= options_.model_queue_max)) {
    return api::Fail(api::ErrorCode::kOverloaded, kBusy);
  }
  Request request{.key = key, .keep_alive = keep_alive};
  const bool bounded =
      options_.queue_timeout > KeepAlive::zero() && options_.queue_timeout < Time::max() - now;
  if (bounded) request.give_up_at = now + options_.queue_timeout;
  requests_.emplace(id, std::move(request));
  models_[key].waiting.push_back(id);
  ++waiting_;
  return {};
}

int32_t Placement::QueuedFor(const std::string& key) const {
  return static_cast<int32_t>(std::ranges::count_if(
      requests_, [&key](const auto& entry) { return !entry.second.started && entry.second.key == key; }));
}

void Placement::Start(api::RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.admitted || found->second.started) return;
  found->second.started = true;
  found->second.give_up_at.reset();
  --waiting_;
}

void Placement::Progress(api::RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.admitted) return;
  Request& request = found->second;
  Model& model = models_.at(request.key);
  if (model.on_trial == id) model.on_trial.reset();
  request.suspect = false;
  request.trials_failed = 0;
  deaths_.erase(request.key);
}

// Drops the request's own record; the caller has taken it out of its model.
void Placement::Forget(api::RequestId id) {
  const auto found = requests_.find(id);
  if (!found->second.started) --waiting_;
  requests_.erase(found);
}

void Placement::Leave(api::RequestId id, Time now) {
  if (requests_.contains(id)) TakeOut(id, now);
}

void Placement::TakeOut(api::RequestId id, Time now) {
  const Request& request = requests_.at(id);
  const auto place = models_.find(request.key);
  Model& model = place->second;
  if (request.admitted) {
    --model.running;
    model.last_use = ++uses_;
    if (model.running == 0) model.idle_since = now;
    if (model.on_trial == id) model.on_trial.reset();
  } else {
    std::erase(model.waiting, id);
  }
  Forget(id);
  if (model.state == State::kWanted && model.waiting.empty() && !model.wanted_back) models_.erase(place);
}

void Placement::Measured(const std::string& key, Need need) {
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state != State::kLoading) return;
  found->second.need = need;
}

void Placement::LoadDone(const std::string& key, Time now) {
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state != State::kLoading) return;
  Model& model = found->second;
  model.state = State::kReady;
  model.fresh = true;
  if (!model.revived) {
    model.keep_alive = options_.default_keep_alive;
    model.pinned = false;
  }
  model.wanted_back = false;
  model.idle_since = now;
  model.last_use = ++uses_;
}

// Counts a death of its runner against a request that was let through.
bool Placement::Convicted(Request& request, bool on_trial, bool alone, Ending ending) const {
  if (ending == Ending::kRefused) return true;
  const bool certain = alone && ending == Ending::kCrashed;
  if (on_trial && (certain || ++request.trials_failed >= kTrialsMax)) return true;
  request.suspect = true;
  return false;
}

// The next runner is not started at once when one after the other dies.
void Placement::NoteDeath(const std::string& key, Time now) {
  constexpr auto kFirstPause = std::chrono::milliseconds(250);
  constexpr int32_t kDoublingsMax = 7;  // half a minute
  Deaths& deaths = deaths_[key];
  ++deaths.count;
  deaths.retry_at =
      deaths.count == 1 ? now : now + kFirstPause * (1 << std::min(deaths.count - 2, kDoublingsMax));
}

std::vector<api::RequestId> Placement::RunnerEnding(const std::string& key, Ending ending, Time now) {
  std::vector<api::RequestId> lost;
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state == State::kWanted) return lost;
  Model& model = found->second;
  if (ending != Ending::kRefused) NoteDeath(key, now);
  // Who waited through the load is lost with a runner that dies in it, or right after it: a model that always
  // does must not be loaded again and again for them.
  const bool killed = ending == Ending::kKilled && deaths_.at(key).count < kLoadDeathsMax;
  if ((model.state == State::kLoading || model.fresh) && !killed) {
    lost.assign(model.waiting.begin(), model.waiting.end());
    model.waiting.clear();
  }
  const auto suspects = std::ranges::count_if(requests_, [&key](const auto& entry) {
    return entry.second.admitted && entry.second.suspect && entry.second.key == key;
  });
  std::vector<api::RequestId> again;
  for (auto& [id, request] : requests_) {
    if (!request.admitted || request.key != key) continue;
    if (Convicted(request, model.on_trial == id, suspects == 1, ending)) {
      lost.push_back(id);
    } else {
      request.admitted = false;
      again.push_back(id);
    }
  }
  // What its operator pinned comes back by itself; a file that cannot be loaded any more does not.
  const bool was_pinned = model.pinned && (model.state == State::kReady || model.wanted_back);
  model.wanted_back = was_pinned && !model.unload_asked && ending != Ending::kRefused && !closed_;
  std::ranges::sort(again);
  model.waiting.insert(model.waiting.begin(), again.begin(), again.end());
  model.running = 0;
  model.on_trial.reset();
  model.fresh = false;
  model.state = State::kEnding;
  for (const api::RequestId id : lost) Forget(id);
  std::ranges::sort(lost);
  return lost;
}

void Placement::RunnerGone(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  if (found->second.waiting.empty() && !found->second.wanted_back) {
    models_.erase(found);
    return;
  }
  Model wanted;
  wanted.waiting = std::move(found->second.waiting);
  wanted.wanted_back = found->second.wanted_back;
  if (deaths_.contains(key)) {
    wanted.revived = true;
    wanted.keep_alive = found->second.keep_alive;
    wanted.pinned = found->second.pinned;
  }
  found->second = std::move(wanted);
}

void Placement::Unload(const std::string& key) {
  const auto found = models_.find(key);
  if (found == models_.end()) return;
  if (found->second.state == State::kLoading || found->second.state == State::kReady) {
    found->second.unload_asked = true;
  }
  found->second.wanted_back = false;
  if (found->second.state == State::kWanted && found->second.waiting.empty()) models_.erase(found);
}

void Placement::Close() {
  closed_ = true;
  for (auto& [key, model] : models_) model.wanted_back = false;
  std::erase_if(models_, [](const auto& entry) {
    return entry.second.state == State::kWanted && entry.second.waiting.empty();
  });
}

// ---- decisions ----

// The first request of models in order of their first requests.
api::RequestId Placement::OldestOf(const std::vector<Models::iterator>& models) {
  return models.empty() ? kNobody : FirstOf(models.front()->second);
}

Placement::Plan Placement::NextPlan(Time now) {
  Plan plan;
  Expire(now, plan);
  EndUnused(now, plan);

  std::vector<Models::iterator> wanted = Wanted(now, plan);
  const api::RequestId oldest_wanted = std::min(OldestOf(wanted), OldestOf(Measured()));
  // Who waited through a load, or came before anyone who needs room, is let through even if the model must
  // yield.
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    Model& m = model->second;
    const bool first_come = !m.waiting.empty() && m.waiting.front() < oldest_wanted && !m.unload_asked;
    if (m.state == State::kReady && (m.fresh || first_come)) Admit(model, now, plan);
    m.fresh = false;
    m.yielding = false;
  }
  Place(wanted, plan);
  GrantMemory(plan);
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kReady && !m.unload_asked && !m.yielding) Admit(model, now, plan);
  }
  for (const auto& [key, model] : models_) {
    if (model.on_trial && !model.waiting.empty() && model.trial_until > now) WakeBy(model.trial_until, plan);
    if (model.state != State::kReady || !Idle(model)) continue;
    if (const auto expires_at = ExpiresAt(model, model.idle_since)) WakeBy(*expires_at, plan);
  }
  return plan;
}

void Placement::WakeBy(Time time, Plan& plan) {
  if (!plan.wake_at || time < *plan.wake_at) plan.wake_at = time;
}

void Placement::Expire(Time now, Plan& plan) {
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
  for (const api::RequestId id : plan.expire) TakeOut(id, now);
}

// Lets through everyone who waits for a ready model; of those that lost a runner one at a time, and with
// nobody behind it. The last one's word on keep-alive counts.
void Placement::Admit(Models::iterator place, Time now, Plan& plan) {
  Model& model = place->second;
  while (!model.waiting.empty() && (!model.on_trial || model.trial_until <= now)) {
    const api::RequestId id = model.waiting.front();
    model.waiting.pop_front();
    Request& request = requests_.find(id)->second;
    request.admitted = true;
    ++model.running;
    model.last_use = ++uses_;
    if (request.suspect) {
      model.on_trial = id;
      model.trial_until = now + options_.trial_time;
    }
    if (request.keep_alive) {
      model.keep_alive = *request.keep_alive;
      model.pinned = *request.keep_alive < KeepAlive::zero();
    }
    plan.admit.push_back(id);
  }
}

void Placement::End(Models::iterator model, Plan& plan, EndReason reason) {
  ++ended_[reason];
  model->second.state = State::kEnding;
  plan.end.push_back(model->first);
}

// Ends what nobody needs any more: loads whose clients all left, models asked to unload, models past their
// keep-alive.
void Placement::EndUnused(Time now, Plan& plan) {
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kLoading && m.waiting.empty() && !m.wanted_back) {
      End(model, plan, EndReason::kCancelled);
    }
    if (m.state != State::kReady || m.running > 0) continue;
    const std::optional<Time> expires_at = ExpiresAt(m, m.idle_since);
    const bool expired = m.waiting.empty() && expires_at && *expires_at <= now;
    const bool owed = m.fresh && !m.waiting.empty();
    if (expired || (m.unload_asked && !owed)) {
      End(model, plan, m.unload_asked ? EndReason::kUnloaded : EndReason::kExpired);
    }
  }
}

// Models that need a runner, the one with the oldest request first.
std::vector<Placement::Models::iterator> Placement::Wanted(Time now, Plan& plan) {
  std::vector<Models::iterator> wanted;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    if (model->second.state != State::kWanted) continue;
    const auto deaths = deaths_.find(model->first);
    if (deaths != deaths_.end() && deaths->second.retry_at > now) {
      WakeBy(deaths->second.retry_at, plan);
    } else {
      wanted.push_back(model);
    }
  }
  std::ranges::sort(wanted, {}, [](Models::iterator model) { return FirstOf(model->second); });
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
      plan.load.push_back(Load{model->first, FirstOf(model->second)});
    } else if (coming > 0) {
      --coming;
    } else if (MakeRoom(plan, EndReason::kPlaces)) {
      may_come = true;
    } else if (!may_come) {
      Refuse(model, plan);
    }
  }
}

// Ends the least recently used idle model, or makes the least recently used busy one yield. False: there is
// none.
bool Placement::MakeRoom(Plan& plan, EndReason reason) {
  auto victim = models_.end();
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state != State::kReady || m.pinned || m.unload_asked || m.yielding) continue;
    const auto rank = [](const Model& candidate) { return std::pair(!Idle(candidate), candidate.last_use); };
    if (victim == models_.end() || rank(m) < rank(victim->second)) victim = model;
  }
  if (victim == models_.end()) return false;
  victim->second.yielding = true;
  if (victim->second.running == 0) End(victim, plan, reason);
  return true;
}

void Placement::Refuse(Models::iterator model, Plan& plan) {
  for (const api::RequestId id : model->second.waiting) {
    plan.refuse.push_back(id);
    Forget(id);
  }
  models_.erase(model);
}

// ---- memory ----

// Bytes that runners have been granted: all, or of those that are on their way out.
int64_t Placement::Granted(bool leaving_only) const {
  int64_t bytes = 0;
  for (const auto& [key, model] : models_) {
    const bool leaving = model.state == State::kEnding ||
                         (model.state == State::kReady && (model.unload_asked || model.yielding));
    if (model.granted && (leaving || !leaving_only)) bytes += *model.granted;
  }
  return bytes;
}

// Loads that know what they need and may not go on yet, the one with the oldest request first.
std::vector<Placement::Models::iterator> Placement::Measured() {
  std::vector<Models::iterator> measured;
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state == State::kLoading && m.need && !m.granted) measured.push_back(model);
  }
  std::ranges::sort(measured, {}, [](Models::iterator model) { return FirstOf(model->second); });
  return measured;
}

// In order of arrival: a large model is not overtaken for ever by small ones.
void Placement::GrantMemory(Plan& plan) {
  for (const Models::iterator model : Measured()) {
    if (!GrantTo(model, plan)) return;
  }
}

// False: it waits for memory that comes free.
bool Placement::GrantTo(Models::iterator place, Plan& plan) {
  Model& model = place->second;
  const Need need = *model.need;
  const auto grant = [&](int64_t cache) {
    model.granted = need.fixed + cache;
    plan.grant.push_back({place->first, cache});
    return true;
  };
  if (options_.memory_bytes < 1) return grant(need.cache);
  const int64_t free = options_.memory_bytes - Granted(/*leaving_only=*/false);
  // Smaller caches are better than another model's end, down to a quarter.
  const int64_t enough = need.fixed + std::max(need.cache_least, need.cache / 4);
  if (enough <= free) return grant(std::min(need.cache, free - need.fixed));
  int64_t coming = Granted(/*leaving_only=*/true);
  while (enough > free + coming && MakeRoom(plan, EndReason::kMemory))
    coming = Granted(/*leaving_only=*/true);
  const bool loading = std::ranges::any_of(models_, [](const auto& entry) {
    return entry.second.state == State::kLoading && entry.second.granted;
  });
  if (coming > 0 || loading) return false;
  const int64_t least = need.fixed + need.cache_least;
  if (least <= free) return grant(free - need.fixed);
  for (const api::RequestId id : model.waiting) {
    plan.too_large.push_back({id, least});
    Forget(id);
  }
  model.waiting.clear();
  model.wanted_back = false;
  End(place, plan, EndReason::kTooLarge);
  return true;
}

// ---- views ----

bool Placement::WantedBack(const std::string& key) const {
  const auto found = models_.find(key);
  return found != models_.end() && found->second.wanted_back;
}

int64_t Placement::pinned_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, model] : models_) bytes += model.pinned ? model.granted.value_or(0) : 0;
  return bytes;
}

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
    if (model.state == State::kWanted && model.waiting.empty() && !model.wanted_back)
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
  if (options_.memory_bytes > 0 && Granted(/*leaving_only=*/false) > options_.memory_bytes) {
    return "more memory granted than there is";
  }
  if (placed_requests != std::ssize(requests_)) return "a request is nowhere, or in two places";
  const auto waiting =
      std::ranges::count_if(requests_, [](const auto& entry) { return !entry.second.started; });
  if (waiting != waiting_) return "waiting requests are miscounted";
  if (waiting_ > std::max(options_.queue_max, 1)) return "more waiting requests than queue_max";
  return "";
}

}  // namespace quire::scheduler
