// The scheduler's decisions about turns: how long a model goes on that must make room, and which model is
// next.
//
// A party waits for room as long as its longest request has run, at least drain_pause and at most a whole
// turn. An answer therefore takes little more than twice its own time, and loads, however long the answers of
// others are; and where answers of two models take turns, the turns grow with them. A party that runs in the
// model that has the room waits a whole turn: what it runs is what it waits for. Behind an address may be
// several people, so that each of its exchanges has turns of its own. An answer that has not run before gets
// twice the drain_pause: cut short, a short one would take two turns.
//
// Two things make a turn longer, since an answer computes again what the runner before had computed:
//  - a turn is never shorter than the load before it: at most half of the time is spent loading;
//  - a whole turn is drain_limit, doubled each time one of the answers has spent more than half of one on
//    what it had before. A party whose answers get on waits for 4 doublings at most. An answer that others
//    have cut short kShortTurnsMax times in this way gets a whole turn whoever waits: fewer than one in a
//    hundred of their requests wait for it.
//
// The next model is the one whose party has the fewest models in use and in front of it, where what has just
// given way counts as in use. Among these it is the one that has waited longest. One party that asks for many
// models is one model to others.

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "scheduler/scheduler.h"

namespace quire::scheduler {
namespace {

constexpr int32_t kShortTurnsMax = 127;
constexpr int32_t kDoublingsForOthers = 4;
constexpr int32_t kDoublingsMax = 10;

}  // namespace

void Scheduler::AdmitAfterPause(Models::iterator position, Time now, Plan& plan) {
  Model& model = position->second;
  if (model.waiting.empty() || model.unload_requested) return;
  if (now >= model.pause_ends) {
    Admit(position, now, plan);
    model.pause_ends = now + options_.drain_pause;
  } else {
    WakeBy(model.pause_ends, plan);
  }
}

// Another model drains in the place of one that did, such as one that is unloaded by name: who waits does not
// wait for a turn from its beginning again.
void Scheduler::PassTurnsOn(Time now) {
  std::optional<Time> since;
  for (const auto& [key, model] : models_) {
    const bool gives_up = model.state == State::kReady && !model.draining && model.draining_since;
    if (gives_up) since = std::min(since.value_or(now), *model.draining_since);
  }
  if (!since) return;
  for (auto& [key, model] : models_) {
    if (!model.draining || model.draining_since) continue;
    model.draining_since = since;
    model.pause_ends = now + options_.drain_pause;
  }
}

// A draining model that has had its turn gives up what it still runs.
void Scheduler::SuspendIfOverdue(Models::iterator position, const Waiters& waiters, Time now, Plan& plan) {
  Model& model = position->second;
  if (model.state != State::kReady || !model.draining || options_.drain_limit <= KeepAlive::zero()) {
    model.draining_since.reset();
    return;
  }
  if (!model.draining_since) {
    model.draining_since = now;
    model.pause_ends = now + options_.drain_pause;
  }
  const Time ends = std::max({*model.draining_since + TurnOf(position->first, waiters), model.paid_off_at,
                              FirstTurnsEnd(position->first, *model.draining_since)});
  if (now >= ends) return Suspend(position, now, plan);
  WakeBy(ends, plan);
  AdmitAfterPause(position, now, plan);
}

void Scheduler::Suspend(Models::iterator position, Time now, Plan& plan) {
  Model& model = position->second;
  std::vector<api::RequestId> suspended;
  for (auto& [id, request] : requests_) {
    if (request.key != position->first || !request.admitted) continue;
    CountTurn(request, now);
    EndRun(request, now);
    suspended.push_back(id);
  }
  model.waiting.insert(model.waiting.end(), suspended.begin(), suspended.end());
  std::ranges::sort(model.waiting);
  model.running = 0;
  model.claims.EndAll(now);
  model.in_turn.clear();
  model.loads_as = newest_;
  model.suspension = ++suspensions_;
  if (model.claims.IsPinnedByAdmin() && !model.unload_requested)
    GiveRoom(model);  // its requests may leave meanwhile
  // The runner has none of those that this plan admitted.
  std::erase_if(suspended, [&plan](api::RequestId id) { return std::erase(plan.admit, id) != 0; });
  plan.suspended.insert(plan.suspended.end(), suspended.begin(), suspended.end());
  StartUnload(position, plan, UnloadReason::kSuspended);
}

void Scheduler::EndRun(Request& request, Time now) {
  request.admitted = false;
  request.ran += now - request.admitted_at;
}

void Scheduler::CountTurn(Request& request, Time now) const {
  if (!request.started) return;  // it had nothing to lose
  const bool whole = now - request.admitted_at >= WholeTurn(request.whole_turns_lost);
  const bool lost =
      !request.progressed_at || now - *request.progressed_at < *request.progressed_at - request.admitted_at;
  request.short_turns_lost = lost && !whole ? request.short_turns_lost + 1 : 0;
  if (lost && whole) request.whole_turns_lost = std::min(request.whole_turns_lost + 1, kDoublingsMax);
}

Scheduler::KeepAlive Scheduler::WholeTurn(int32_t doublings) const {
  constexpr KeepAlive kDoubledMax = std::chrono::hours(24);  // no overflow
  return options_.drain_limit > kDoubledMax ? options_.drain_limit : options_.drain_limit * (1 << doublings);
}

Scheduler::Waiters Scheduler::WaitersFor(const std::vector<const Model*>& in_need, Time now) const {
  Waiters waiters;
  for (const Model* model : in_need) {
    for (const api::RequestId id : model->waiting) {
      const Request& request = requests_.find(id)->second;
      int32_t& lost = waiters[MemberOf(request)].whole_turns_lost;
      lost = std::max(lost, request.whole_turns_lost);
    }
  }
  if (waiters.empty()) return waiters;
  for (const auto& [id, request] : requests_) {
    const auto found = waiters.find(MemberOf(request));
    if (found == waiters.end()) continue;
    const KeepAlive ran = request.ran + (request.admitted ? now - request.admitted_at : KeepAlive::zero());
    found->second.longest_run = std::max(found->second.longest_run, ran);
  }
  return waiters;
}

// How long a model may drain.
Scheduler::KeepAlive Scheduler::TurnOf(const std::string& key, const Waiters& waiters) const {
  std::set<PartyMember> here;  // that the model serves
  int32_t needed_here = 0;     // doublings
  bool owed = false;
  for (const auto& [id, request] : requests_) {
    if (!request.admitted || request.key != key) continue;
    here.insert(MemberOf(request));
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
Scheduler::Time Scheduler::FirstTurnsEnd(const std::string& key, Time draining_since) const {
  const KeepAlive turn = std::min(2 * options_.drain_pause, options_.drain_limit);
  Time end = draining_since;
  for (const auto& [id, request] : requests_) {
    const bool first = request.admitted && request.key == key && request.ran == KeepAlive::zero();
    if (first) end = std::max(end, std::min(request.admitted_at, draining_since) + turn);
  }
  return end;
}

// Unloads the least recently used idle model, or drains the least recently used busy one. False: there is
// none. A pin that is not an admin's makes no room for itself when its runner has died: it takes what is
// free.
bool Scheduler::MakeRoom(const Model& for_model, Plan& plan, UnloadReason reason) {
  const KeepAliveClaims::Parties parties = PartiesOf(for_model);
  if (parties.empty() && (for_model.gave_room || !for_model.claims.IsPinnedByAdmin())) return false;
  const bool has_begun = HasBegun(for_model);
  auto victim = models_.end();
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    const Model& m = model->second;
    if (m.state != State::kReady || m.unload_requested || m.draining) continue;
    if (m.claims.IsPinnedAgainst(parties) && !has_begun) continue;
    // One that drains already goes on draining, whatever ends in it meanwhile.
    const auto rank = [&parties](const Model& candidate) {
      return std::tuple(candidate.claims.IsPinnedAgainst(parties), !Idle(candidate),
                        !candidate.draining_since.has_value(), candidate.last_use);
    };
    if (victim == models_.end() || rank(m) < rank(victim->second)) victim = model;
  }
  if (victim == models_.end()) return false;
  Model& chosen = victim->second;
  chosen.draining = true;
  if (chosen.running > 0) return true;
  if (chosen.claims.IsPinnedAgainst(parties)) GiveRoom(chosen);
  StartUnload(victim, plan, reason);
  return true;
}

// Some of an answer is with its client: no pin keeps it from going on. What it was suspended for may be what
// is pinned.
bool Scheduler::HasBegun(const Model& model) const {
  return std::ranges::any_of(model.waiting,
                             [this](api::RequestId id) { return requests_.find(id)->second.started; });
}

void Scheduler::GiveRoom(Model& model) {
  model.restart_pinned = true;
  model.gave_room = model.granted.value_or(0);
}

bool Scheduler::MayLoad(const Model& model) const {
  if (!AwaitsFreeRoom(model)) return true;
  int32_t used = 0;
  for (const auto& [key, other] : models_) {
    if (other.state == State::kNotLoaded && !other.waiting.empty()) return false;
    if (other.state == State::kLoading && !other.granted && options_.memory_bytes > 0) return false;
    used += other.state != State::kNotLoaded ? 1 : 0;
  }
  const bool has_slot = used < std::max(options_.models_max, 1);
  const bool has_memory = options_.memory_bytes < 1 ||
                          Granted(/*leaving_only=*/false) + *model.gave_room <= options_.memory_bytes;
  return has_slot && has_memory;
}

void Scheduler::SortByTurn(std::vector<Models::iterator>& models) const {
  if (models.size() < 2) return;
  std::ranges::sort(models, {}, [](Models::iterator model) { return OrderOf(model->second); });
  std::set<std::pair<std::string_view, std::string_view>> in_use;  // party, model
  for (const auto& [id, request] : requests_) {
    const Model& model = models_.find(request.key)->second;
    const bool loading =
        model.state == State::kLoading &&
        std::ranges::none_of(models, [&model](Models::iterator one) { return &one->second == &model; });
    if (request.admitted || model.gave_way || loading) in_use.emplace(request.party, request.key);
  }
  std::map<std::string_view, int32_t> before;  // models of a party, in use and in front
  for (const auto& [party, key] : in_use) ++before[party];
  std::vector<std::pair<int32_t, Models::iterator>> ranked;
  for (const Models::iterator model : models) {
    int32_t rank = std::numeric_limits<int32_t>::max();
    for (const std::string_view party : PartiesOf(model->second)) rank = std::min(rank, before[party]++);
    ranked.emplace_back(rank, model);
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<int32_t, Models::iterator>::first);
  std::ranges::transform(ranked, models.begin(), &std::pair<int32_t, Models::iterator>::second);
}

}  // namespace quire::scheduler
