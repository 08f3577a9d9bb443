#include "scheduler/drain_turns.h"

#include <algorithm>
#include <optional>
#include <set>

namespace quire::scheduler {
namespace {

constexpr int32_t kShortTurnsMax = 127;
constexpr int32_t kDoublingsForOthers = 4;
constexpr int32_t kDoublingsMax = 10;

}  // namespace

void DrainTurns::PassOn(Time now) {
  std::optional<Time> since;
  for (const auto& [key, model] : slots_.models()) {
    const bool gives_up = model.ready() && !model.drain.active && model.drain.since;
    if (gives_up) since = std::min(since.value_or(now), *model.drain.since);
  }
  if (!since) return;
  for (auto& [key, model] : slots_.models()) {
    if (!model.drain.active || model.drain.since) continue;
    model.drain.since = since;
    model.drain.pause_ends = now + options_.drain_pause;
  }
}

bool DrainTurns::MayAdmit(Models::iterator position, const Waiters& waiters, Time now, Plan& plan) {
  Model& model = position->second;
  Model::Drain& drain = model.drain;
  if (!model.ready() || !drain.active || options_.drain_limit <= KeepAlive::zero()) {
    drain.since.reset();
    return model.ready() && !drain.active && !model.unload_requested;
  }
  if (!drain.since) {
    drain.since = now;
    drain.pause_ends = now + options_.drain_pause;
  }
  const Time ends = std::max({*drain.since + TurnOf(position->first, waiters), model.load.paid_off_at,
                              FirstTurnsEnd(position->first, *drain.since)});
  if (now >= ends) {
    Suspend(position, now, plan);
    return false;
  }
  plan.WakeBy(ends);
  if (model.waiting.empty() || model.unload_requested) return false;
  if (now >= drain.pause_ends) {
    drain.pause_ends = now + options_.drain_pause;
    return true;
  }
  plan.WakeBy(drain.pause_ends);
  return false;
}

void DrainTurns::Suspend(Models::iterator position, Time now, Plan& plan) {
  Model& model = position->second;
  std::vector<api::RequestId> suspended;
  for (auto& [id, request] : queue_.requests()) {
    if (!request.RunsIn(position->first)) continue;
    CountTurn(request, now);
    request.EndRun(now);
    suspended.push_back(id);
  }
  model.waiting.insert(model.waiting.end(), suspended.begin(), suspended.end());
  std::ranges::sort(model.waiting);
  model.running = 0;
  model.claims.EndAll(now);
  model.quarantine.EndTurn();
  model.next.loads_as = queue_.newest();
  model.next.suspension = ++suspensions_;
  if (model.claims.IsPinnedByAdmin() && !model.unload_requested)
    model.GiveRoom();  // its requests may leave meanwhile
  // The runner has none of those that this plan admitted.
  std::erase_if(suspended, [&plan](api::RequestId id) { return std::erase(plan.admit, id) != 0; });
  plan.suspended.insert(plan.suspended.end(), suspended.begin(), suspended.end());
  slots_.StartUnload(position, plan, UnloadReason::kSuspended);
}

void DrainTurns::CountTurn(QueuedRequest& request, Time now) const {
  if (!request.started) return;  // it had nothing to lose
  const bool whole = now - request.admitted_at >= WholeTurn(request.whole_turns_lost);
  const bool lost =
      !request.progressed_at || now - *request.progressed_at < *request.progressed_at - request.admitted_at;
  request.short_turns_lost = lost && !whole ? request.short_turns_lost + 1 : 0;
  if (lost && whole) request.whole_turns_lost = std::min(request.whole_turns_lost + 1, kDoublingsMax);
}

KeepAlive DrainTurns::WholeTurn(int32_t doublings) const {
  constexpr KeepAlive kDoubledMax = std::chrono::hours(24);  // no overflow
  return options_.drain_limit > kDoubledMax ? options_.drain_limit : options_.drain_limit * (1 << doublings);
}

DrainTurns::Waiters DrainTurns::WaitersFor(const std::vector<const Model*>& in_need, Time now) const {
  Waiters waiters;
  for (const Model* model : in_need) {
    for (const api::RequestId id : model->waiting) {
      const QueuedRequest& request = queue_.At(id);
      int32_t& lost = waiters[request.owner()].whole_turns_lost;
      lost = std::max(lost, request.whole_turns_lost);
    }
  }
  if (waiters.empty()) return waiters;
  for (const auto& [id, request] : queue_.requests()) {
    const auto found = waiters.find(request.owner());
    if (found == waiters.end()) continue;
    const KeepAlive ran = request.ran + (request.admitted ? now - request.admitted_at : KeepAlive::zero());
    found->second.longest_run = std::max(found->second.longest_run, ran);
  }
  return waiters;
}

// How long a model may drain.
KeepAlive DrainTurns::TurnOf(const std::string& key, const Waiters& waiters) const {
  std::set<QueuedRequest::Owner> here;  // that the model serves
  int32_t needed_here = 0;              // doublings
  bool owed = false;
  for (const auto& [id, request] : queue_.requests()) {
    if (!request.RunsIn(key)) continue;
    here.insert(request.owner());
    needed_here = std::max(needed_here, request.whole_turns_lost);
    owed = owed || request.short_turns_lost >= kShortTurnsMax;
  }
  int32_t needed = needed_here;
  int32_t needed_by_all = needed_here;
  for (const auto& [owner, waiter] : waiters) {
    needed = std::max(needed, waiter.whole_turns_lost);
    needed_by_all = std::min(needed_by_all, waiter.whole_turns_lost);
  }
  KeepAlive turn = WholeTurn(std::min(needed, std::max(needed_by_all, kDoublingsForOthers)));
  if (owed) return turn;
  for (const auto& [owner, waiter] : waiters) {
    if (!here.contains(owner)) turn = std::min(turn, std::max(waiter.longest_run, options_.drain_pause));
  }
  return turn;
}

// When those answers of a draining model end that have not run before.
Time DrainTurns::FirstTurnsEnd(const std::string& key, Time draining_since) const {
  const KeepAlive turn = std::min(2 * options_.drain_pause, options_.drain_limit);
  Time end = draining_since;
  for (const auto& [id, request] : queue_.requests()) {
    const bool first = request.RunsIn(key) && request.ran == KeepAlive::zero();
    if (first) end = std::max(end, std::min(request.admitted_at, draining_since) + turn);
  }
  return end;
}

}  // namespace quire::scheduler
