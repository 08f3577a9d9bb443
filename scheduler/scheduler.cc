#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "scheduler/backend.h"

namespace quire::scheduler {
namespace {

using State = Model::State;

// Runners killed while loading before the waiting requests fail.
constexpr int32_t kLoadDeathsMax = 3;

// The first request of models.
api::RequestId OldestOf(const std::vector<Models::iterator>& models) {
  api::RequestId oldest = Plan::kNoRequest;
  for (const Models::iterator model : models) oldest = std::min(oldest, model->second.order().first);
  return oldest;
}

}  // namespace

// ---- events ----

api::Result<void> Scheduler::Enqueue(api::RequestId id, const std::string& key,
                                     std::optional<KeepAliveClaim> keep_alive, Time now,
                                     const api::Client& client) {
  if (!queue_.Add(id, {.key = key, .client = client, .keep_alive = keep_alive}, now))
    return api::Fail(api::ErrorCode::kOverloaded, kBusy);
  Model& model = slots_.models()[key];
  model.waiting.push_back(id);
  if (model.unload_by && *model.unload_by != client.party) {
    model.unload_requested = false;
    model.unload_by.reset();
  }
  return {};
}

bool Scheduler::Sent(api::RequestId id, Time now) {
  QueuedRequest* request = queue_.Find(id);
  if (request == nullptr || !request->admitted) return false;
  request->sent_at = now;
  return slots_.Find(request->key)->quarantine.Sent(id, *request, options_.probation_time);
}

void Scheduler::Start(api::RequestId id, bool answers) {
  if (QueuedRequest* request = queue_.Find(id)) queue_.Start(*request, answers);
}

void Scheduler::Progress(api::RequestId id, Time now) {
  QueuedRequest* request = queue_.Find(id);
  if (request == nullptr || !request->admitted) return;
  if (!request->progressed_at) request->progressed_at = now;
  request->suspicion = {};
  slots_.Find(request->key)->quarantine.EndTurnOf(id);
  slots_.EraseDeaths(request->key);
}

void Scheduler::Abandon(api::RequestId id, Time now) {
  if (const QueuedRequest* request = queue_.Find(id))
    slots_.Find(request->key)->quarantine.Depart(*request, now);
  Remove(id, now);
}

void Scheduler::Remove(api::RequestId id, Time now) {
  const QueuedRequest* request = queue_.Find(id);
  if (request == nullptr) return;
  const std::string key = request->key;
  Model& model = *slots_.Find(key);
  if (request->admitted) {
    --model.running;
    model.claims.End(request->client.party, now);
    model.last_use = ++uses_;
    if (model.running == 0) model.idle_since = now;
    model.quarantine.EndTurnOf(id);
  } else {
    std::erase(model.waiting, id);
  }
  queue_.Erase(id);
  slots_.EraseIfUnused(key);
}

void Scheduler::OnMemoryEstimate(const std::string& key, MemoryEstimate estimate) {
  Model* model = slots_.Find(key);
  if (model != nullptr && model->state == State::kLoading) model->load.estimate = estimate;
}

void Scheduler::LoadDone(const std::string& key, Time now) {
  Model* model = slots_.Find(key);
  if (model == nullptr || model->state != State::kLoading) return;
  model->state = State::kReady;
  model->load.just_done = true;
  model->load.paid_off_at = now + (now - model->load.since);
  if (!model->next.keeps_claims) model->claims = {};
  model->next = {};
  model->idle_since = now;
  model->last_use = ++uses_;
}

std::vector<api::RequestId> Scheduler::RunnerStopping(const std::string& key, ExitCause cause, Time now,
                                                      std::optional<DeathTime> died) {
  std::vector<api::RequestId> lost;
  Model* const model = slots_.Find(key);
  if (model == nullptr || model->state == State::kNotLoaded) return lost;
  const int32_t deaths = cause != ExitCause::kRefused ? slots_.RecordDeath(key, now) : 0;
  // Requests that waited for the load fail with a runner that dies during it or right after it: a model that
  // always does must not be reloaded again and again for them.
  const bool killed = cause == ExitCause::kKilled && deaths < kLoadDeathsMax;
  if ((model->state == State::kLoading || model->load.just_done) && !killed) {
    lost.assign(model->waiting.begin(), model->waiting.end());
    model->waiting.clear();
  }
  const Time died_at = died ? std::min(died->to, now) : now;
  const DeathTime within{died ? std::min(died->from, died_at) : now, died_at};
  const auto failed = model->quarantine.CountDeath(key, queue_, cause, within, options_.probation_time);
  for (auto& [id, request] : queue_.requests()) {
    if (!request.RunsIn(key)) continue;
    if (failed.contains(id)) {
      lost.push_back(id);
    } else {
      request.EndRun(now);
      model->waiting.push_back(id);
    }
  }
  std::ranges::sort(model->waiting);
  // A pinned model is reloaded by itself unless its file can no longer be loaded.
  const bool was_pinned = model->claims.IsPinned() && (model->ready() || model->next.pinned);
  const bool gives_room = model->state == State::kStopping && model->next.gave_room && model->next.pinned;
  const bool comes_back = gives_room || (was_pinned && cause != ExitCause::kRefused);
  model->next.pinned = comes_back && !model->unload_requested && !closed_;
  model->running = 0;
  model->claims.EndAll(now);
  model->quarantine.EndTurn();
  model->load.just_done = false;
  model->state = State::kStopping;
  for (const api::RequestId id : lost) queue_.Erase(id);
  std::ranges::sort(lost);
  return lost;
}

void Scheduler::RunnerReaped(const std::string& key) {
  Model* const model = slots_.Find(key);
  if (model == nullptr) return;
  Model next;
  next.waiting = std::move(model->waiting);
  next.quarantine = model->quarantine.OfNextRunner();
  next.next = model->next;
  next.next.gave_way = next.next.loads_as.has_value();
  const bool unloaded_for_all = model->unload_requested && !model->unload_by;
  next.next.keeps_claims =
      (slots_.HasDied(key) || next.next.loads_as || next.next.gave_room) && !unloaded_for_all;
  if (next.next.keeps_claims) next.claims = std::move(model->claims);
  *model = std::move(next);
  slots_.EraseIfUnused(key);
}

void Scheduler::Unload(const std::string& key) {
  Model* const model = slots_.Find(key);
  if (model == nullptr) return;
  if (model->state == State::kLoading || model->ready()) {
    model->unload_requested = true;
    model->unload_by.reset();
  } else {
    model->claims = {};
  }
  CancelRestart(key);
}

void Scheduler::EndClaim(const std::string& key, const fair::PartyId& party, Time now) {
  Model* const model = slots_.Find(key);
  if (model == nullptr) return;
  model->claims.Release(party);
  const auto waiting = queue_.PartiesOf(model->waiting);
  const bool waited_for = waiting.size() > 1 || (waiting.size() == 1 && !waiting.contains(party));
  if (!model->claims.HasOther(party, now) && !waited_for) {
    const bool unloads_later = model->state == State::kLoading || model->ready();
    if (unloads_later && !model->unload_requested) {
      model->unload_requested = true;
      model->unload_by = party;
    }
    CancelRestart(key);
  } else if (!model->claims.IsPinned()) {
    CancelRestart(key);
  }
}

void Scheduler::CancelRestart(const std::string& key) {
  slots_.Find(key)->next.pinned = false;
  slots_.EraseIfUnused(key);
}

void Scheduler::Close() {
  closed_ = true;
  for (auto& [key, model] : slots_.models()) model.next.pinned = false;
  std::erase_if(slots_.models(), [](const auto& entry) { return entry.second.unused(); });
}

// ---- decisions ----

Plan Scheduler::NextPlan(Time now) {
  Plan plan;
  queue_.Expire(now, plan);
  for (const auto* dropped : {&plan.displaced, &plan.expire}) {
    for (const api::RequestId id : *dropped) Abandon(id, now);
  }
  slots_.UnloadUnused(now, plan);

  const std::vector<Models::iterator> to_load = slots_.ModelsToLoad(now, plan);
  const api::RequestId oldest_to_load = std::min(OldestOf(to_load), OldestOf(slots_.AwaitingMemory()));
  // Requests that waited for a load, or arrived before any request that needs room, are admitted even if the
  // model must drain.
  for (auto& [key, model] : slots_.models()) {
    const bool first_come = model.first() < oldest_to_load && !model.unload_requested;
    if (model.ready() && (model.load.just_done || first_come)) Admit(model, now, plan);
    model.load.just_done = false;
    // A model unloaded by name drains for its own next requests as it does for another model.
    model.drain.active = model.leaves() && !model.waiting.empty();
  }
  std::vector<const Model*> in_need = slots_.AssignSlots(to_load, now, plan);
  slots_.GrantMemory(now, plan);
  for (const Models::iterator model : slots_.AwaitingMemory()) in_need.push_back(&model->second);
  const DrainTurns::Waiters waiters = turns_.WaitersFor(in_need, now);
  turns_.PassOn(now);
  for (auto model = slots_.models().begin(); model != slots_.models().end(); ++model) {
    if (turns_.MayAdmit(model, waiters, now, plan)) Admit(model->second, now, plan);
  }
  for (auto& [key, model] : slots_.models()) {
    model.next.gave_way = false;
    const auto turn_ends = model.quarantine.turn_ends();
    if (turn_ends && !model.waiting.empty() && *turn_ends > now) plan.WakeBy(*turn_ends);
    if (!model.ready() || model.running > 0 || !model.waiting.empty()) continue;
    if (const auto expires_at = model.ExpiresAt(now, options_.default_keep_alive)) plan.WakeBy(*expires_at);
  }
  return plan;
}

// Admits all requests that wait for a ready model; while some of them are quarantined, in turns.
void Scheduler::Admit(Model& model, Time now, Plan& plan) {
  while (!model.waiting.empty() && model.quarantine.IsOver(now)) {
    for (const api::RequestId id :
         model.quarantine.NextTurn(model.waiting, queue_, options_.probation_time, now)) {
      QueuedRequest& request = queue_.At(id);
      request.Admit(now);
      ++model.running;
      model.last_use = ++uses_;
      model.claims.Start(request.client.party, request.keep_alive, options_.default_keep_alive);
      plan.admit.push_back(id);
    }
  }
}

// ---- views ----

bool Scheduler::WillRestart(const std::string& key) const {
  const auto found = slots_.models().find(key);
  return found != slots_.models().end() && found->second.next.pinned;
}

std::vector<Scheduler::Ready> Scheduler::ReadyModels(Time now) const {
  std::vector<Ready> ready;
  for (const auto& [key, model] : slots_.models()) {
    if (model.ready())
      ready.push_back({key, model.running, model.ExpiresAt(now, options_.default_keep_alive)});
  }
  return ready;
}

std::string Scheduler::CheckInvariants() const {
  int64_t counted_requests = 0;
  const auto& requests = queue_.requests();
  for (const auto& [key, model] : slots_.models()) {
    if (model.unused()) return "model " + key + " is not loaded and has no waiting request";
    if (!model.ready() && model.running != 0)
      return "model " + key + " has running requests but is not ready";
    if (model.claims.running() != model.running)
      return "model " + key + " counts running requests that its parties do not have";
    counted_requests += std::ssize(model.waiting) + model.running;
    const auto admitted =
        std::ranges::count_if(requests, [&key](const auto& entry) { return entry.second.RunsIn(key); });
    if (admitted != model.running) return "model " + key + " has a wrong count of running requests";
    for (const api::RequestId id : model.quarantine.in_turn()) {
      const auto found = requests.find(id);
      if (found == requests.end() || !found->second.RunsIn(key))
        return "model " + key + " waits for a request that it does not run";
    }
    if (!std::ranges::is_sorted(model.waiting)) return "model " + key + " queues its requests out of order";
    for (const api::RequestId id : model.waiting) {
      const auto found = requests.find(id);
      if (found == requests.end() || found->second.admitted || found->second.key != key)
        return "model " + key + " queues a request that does not wait for it";
    }
  }
  if (counted_requests != std::ssize(requests)) return "a request is in no state, or in two";
  if (std::string broken = slots_.CheckInvariants(); !broken.empty()) return broken;
  return queue_.CheckInvariants();
}

}  // namespace quire::scheduler
