// The scheduler's decisions about deaths: which request killed a runner, and which one is admitted to the
// next.
//
// Requests that were in a runner when it died are quarantined until the next runner has computed something
// for them. While some of them wait, a model admits in turns:
//  - A probation: one quarantined request. Parties take turns, also over several runners; a party's oldest
//    goes first.
//  - An open turn: all that wait whose owner has no quarantined request waiting. Other requests of that owner
//    come later.
// A turn ends when something has been computed for each of its requests, or after probation_time. That of a
// probation begins again when the runner is sent the request, which may wait for room meanwhile. A runner's
// first turn is a probation, so that a flood of requests that kill cannot keep quarantined ones from being
// tried. It follows:
//  - A request whose owner has none in quarantine waits for one open turn and one probation at most.
//  - Between two probations of a party every other party with a request in quarantine has one. The exception
//    is the request that is tried first after an unexplained death.
//
// Candidates are the requests that a runner was sent and for which it had computed nothing when it died.
// Those that were not quarantined then are newcomers, and so are those that were abandoned, for as long as
// the runner may be at them (departures.h): who sends a request that kills and hangs up makes no other one
// fail. A quarantined candidate fails if it was on probation and there is no other candidate, or if the
// runner had no other request. While there is a newcomer nobody fails: its sender could make the requests of
// others fail. A death for which nobody fails is unexplained. It makes the next probations of its quarantined
// candidates longer, so that a slow killer dies in its own. The one that was sent last is tried first, so
// that it is alone in the next runner. When all candidates have the longest probation, the one on probation
// fails, and so does one that is alone after it.

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "scheduler/scheduler.h"

namespace quire::scheduler {
namespace {

constexpr int32_t kUnexplainedDeathsMax = 2;  // after each a probation is four times as long

}  // namespace

// ---- who killed a runner ----

Scheduler::KeepAlive Scheduler::ProbationOf(const Request& request) const {
  return options_.probation_time * (1 << (2 * request.unexplained_deaths));
}

void Scheduler::RecordDeparture(const Request& request, Time now) {
  if (!request.admitted || !request.sent_at) return;
  models_.at(request.key).departures.Add(*request.sent_at, now, request.progressed_at.has_value());
}

Scheduler::Candidates Scheduler::CandidatesFor(const std::string& key, const DeathTime& died) const {
  const Departures& departures = models_.at(key).departures;
  Candidates candidates;
  candidates.newcomers = departures.UnprovenCover(died.from, died.to) ? 1 : 0;
  candidates.sent = departures.Cover(died.from, died.to) ? 1 : 0;
  Time last{};
  for (const auto& [id, request] : requests_) {
    if (!request.admitted || request.key != key || !WasSentBy(request, died.to)) continue;
    ++candidates.sent;
    if (!request.quarantined) {
      candidates.newcomers += request.progressed_at ? 0 : 1;
      continue;
    }
    ++candidates.quarantined;
    candidates.had_longest_probation += request.unexplained_deaths == kUnexplainedDeathsMax ? 1 : 0;
    if (candidates.quarantined == 1 || std::pair(*request.sent_at, id) > std::pair(last, candidates.last)) {
      last = *request.sent_at;
      candidates.last = id;
    }
  }
  return candidates;
}

bool Scheduler::IsToBlame(const Request& request, const Candidates& candidates, Time died_at) const {
  if (candidates.sent == 1) return true;
  if (candidates.newcomers > 0) return false;
  const bool on_probation = died_at < *request.sent_at + ProbationOf(request);
  const bool alone = candidates.quarantined == 1;
  const bool all_had_longest_probation = candidates.had_longest_probation == candidates.quarantined;
  return (on_probation && alone) || (all_had_longest_probation && (on_probation || alone));
}

// Counts a runner's death against an admitted request. True: the request fails.
bool Scheduler::ShouldFail(api::RequestId id, Request& request, const Candidates& candidates, ExitCause cause,
                           Time died_at) const {
  if (cause == ExitCause::kRefused) return true;
  if (!request.sent_at) return false;
  const bool candidate = request.quarantined && WasSentBy(request, died_at);
  request.quarantined = true;
  if (!candidate) return false;
  if (IsToBlame(request, candidates, died_at))
    return cause == ExitCause::kCrashed || ++request.probation_failures >= kProbationFailuresMax;
  request.unexplained_deaths = std::min(request.unexplained_deaths + 1, kUnexplainedDeathsMax);
  request.tried_first = id == candidates.last;
  return false;
}

// The next runner is not started at once when one after the other dies.
void Scheduler::RecordDeath(const std::string& key, Time now) {
  constexpr auto kFirstPause = std::chrono::milliseconds(250);
  constexpr int32_t kDoublingsMax = 7;  // half a minute
  Deaths& deaths = deaths_[key];
  ++deaths.count;
  deaths.retry_at =
      deaths.count == 1 ? now : now + kFirstPause * (1 << std::min(deaths.count - 2, kDoublingsMax));
}

std::vector<api::RequestId> Scheduler::RunnerStopping(const std::string& key, ExitCause cause, Time now,
                                                      std::optional<DeathTime> died) {
  std::vector<api::RequestId> lost;
  const auto found = models_.find(key);
  if (found == models_.end() || found->second.state == State::kNotLoaded) return lost;
  Model& model = found->second;
  if (cause != ExitCause::kRefused) RecordDeath(key, now);
  // Requests that waited for the load fail with a runner that dies during it or right after it: a model that
  // always does must not be reloaded again and again for them.
  const bool killed = cause == ExitCause::kKilled && deaths_.at(key).count < kLoadDeathsMax;
  if ((model.state == State::kLoading || model.just_loaded) && !killed) {
    lost.assign(model.waiting.begin(), model.waiting.end());
    model.waiting.clear();
  }
  const Time died_at = died ? std::min(died->to, now) : now;
  const Candidates candidates = CandidatesFor(key, {died ? std::min(died->from, died_at) : now, died_at});
  for (auto& [id, request] : requests_) {
    if (!request.admitted || request.key != key) continue;
    if (ShouldFail(id, request, candidates, cause, died_at)) {
      lost.push_back(id);
    } else {
      EndRun(request, now);
      model.waiting.push_back(id);
    }
  }
  std::ranges::sort(model.waiting);
  // A pinned model is reloaded by itself unless its file can no longer be loaded.
  const bool was_pinned = model.claims.IsPinned() && (model.state == State::kReady || model.restart_pinned);
  const bool gives_room = model.state == State::kStopping && model.gave_room && model.restart_pinned;
  const bool comes_back = gives_room || (was_pinned && cause != ExitCause::kRefused);
  model.restart_pinned = comes_back && !model.unload_requested && !closed_;
  model.running = 0;
  model.claims.EndAll(now);
  model.in_turn.clear();
  model.just_loaded = false;
  model.state = State::kStopping;
  for (const api::RequestId id : lost) EraseRequest(id);
  std::ranges::sort(lost);
  return lost;
}

// ---- who is admitted ----

// Admits all requests that wait for a ready model; while some of them are quarantined, in turns.
void Scheduler::Admit(Models::iterator position, Time now, Plan& plan) {
  Model& model = position->second;
  while (!model.waiting.empty() && (model.in_turn.empty() || model.turn_ends <= now)) {
    AdmitTurn(model, now, plan);
  }
}

void Scheduler::AdmitTurn(Model& model, Time now, Plan& plan) {
  model.in_turn.clear();
  const std::set<PartyMember> quarantined = MembersInQuarantine(model);
  if (quarantined.empty()) {
    model.last_probations.clear();
    for (const api::RequestId id : std::exchange(model.waiting, {})) AdmitOne(model, id, now, plan);
    return;
  }
  std::vector<api::RequestId> turn;
  if (std::exchange(model.open_turn_is_next, false)) turn = OpenTurnOf(model, quarantined);
  model.turn_ends = now + options_.probation_time;
  if (turn.empty()) {
    turn.push_back(NextOnProbation(model));
    Request& request = requests_.find(turn.front())->second;
    request.tried_first = false;
    model.last_probations[request.party] = ++probations_;
    model.open_turn_is_next = true;
    model.turn_ends = now + ProbationOf(request);
  }
  for (const api::RequestId id : turn) AdmitOne(model, id, now, plan);
  model.in_turn.insert(turn.begin(), turn.end());
  std::erase_if(model.waiting, [&model](api::RequestId id) { return model.in_turn.contains(id); });
}

void Scheduler::AdmitOne(Model& model, api::RequestId id, Time now, Plan& plan) {
  Request& request = requests_.find(id)->second;
  request.admitted = true;
  request.admitted_at = now;
  request.sent_at.reset();
  request.progressed_at.reset();
  ++model.running;
  model.last_use = ++uses_;
  model.claims.Start(request.party, request.keep_alive, options_.default_keep_alive);
  plan.admit.push_back(id);
}

bool Scheduler::Sent(api::RequestId id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.admitted) return false;
  Request& request = found->second;
  request.sent_at = now;
  Model& model = models_.at(request.key);
  if (!request.quarantined || !model.in_turn.contains(id)) return false;
  model.turn_ends = now + ProbationOf(request);
  return true;
}

// The owners of those that wait.
std::set<Scheduler::PartyMember> Scheduler::MembersInQuarantine(const Model& model) const {
  std::set<PartyMember> owners;
  for (const api::RequestId id : model.waiting) {
    const Request& request = requests_.find(id)->second;
    if (request.quarantined) owners.insert(MemberOf(request));
  }
  return owners;
}

std::vector<api::RequestId> Scheduler::OpenTurnOf(const Model& model,
                                                  const std::set<PartyMember>& quarantined) const {
  std::vector<api::RequestId> turn;
  std::ranges::copy_if(model.waiting, std::back_inserter(turn), [&](api::RequestId id) {
    return !quarantined.contains(MemberOf(requests_.find(id)->second));
  });
  return turn;
}

// REQUIRES: a quarantined request waits.
api::RequestId Scheduler::NextOnProbation(const Model& model) const {
  std::optional<std::tuple<bool, uint64_t, api::RequestId>> first;
  for (const api::RequestId id : model.waiting) {
    const Request& request = requests_.find(id)->second;
    if (!request.quarantined) continue;
    const auto last_probation = model.last_probations.find(request.party);
    const std::tuple rank(!request.tried_first,
                          last_probation == model.last_probations.end() ? 0 : last_probation->second, id);
    if (!first || rank < *first) first = rank;
  }
  return std::get<api::RequestId>(*first);
}

}  // namespace quire::scheduler
