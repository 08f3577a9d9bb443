#include "scheduler/quarantine.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace quire::scheduler {
namespace {

constexpr int32_t kUnexplainedDeathsMax = 2;  // after each a probation is four times as long
constexpr int32_t kProbationFailuresMax = 2;  // runners killed by a signal; a crash is enough

KeepAlive ProbationOf(const QueuedRequest& request, KeepAlive probation_time) {
  return probation_time * (1 << (2 * request.suspicion.unexplained_deaths));
}

}  // namespace

void Departures::Add(Time sent_at, Time left_at, bool progressed) {
  AddTo(all_, sent_at, left_at + kAfter);
  if (!progressed) AddTo(unproven_, sent_at, left_at + kAfter);
}

void Departures::AddTo(Spans& spans, Time begin, Time end) {
  for (; !spans.empty() && spans.back().to >= begin; spans.pop_back())
    begin = std::min(begin, spans.back().from);
  spans.push_back({begin, end});
  if (spans.size() > kSpansMax) spans.pop_front();
}

bool Departures::Covers(const Spans& spans, const DeathTime& died) {
  return std::ranges::any_of(
      spans, [&](const DeathTime& span) { return span.from <= died.to && died.from <= span.to; });
}

// ---- who killed a runner ----

void Quarantine::Depart(const QueuedRequest& request, Time now) {
  if (request.admitted && request.sent_at)
    departures_.Add(*request.sent_at, now, request.progressed_at.has_value());
}

Quarantine::Candidates Quarantine::CandidatesFor(const std::string& key, const RequestQueue& queue,
                                                 const DeathTime& died) const {
  Candidates candidates;
  candidates.newcomers = departures_.UnprovenCover(died) ? 1 : 0;
  candidates.sent = departures_.Cover(died) ? 1 : 0;
  Time last{};
  for (const auto& [id, request] : queue.requests()) {
    if (!request.RunsIn(key) || !request.WasSentBy(died.to)) continue;
    ++candidates.sent;
    if (!request.suspicion.quarantined) {
      candidates.newcomers += request.progressed_at ? 0 : 1;
      continue;
    }
    ++candidates.quarantined;
    candidates.had_longest_probation += request.suspicion.unexplained_deaths == kUnexplainedDeathsMax ? 1 : 0;
    if (candidates.quarantined == 1 || std::pair(*request.sent_at, id) > std::pair(last, candidates.last)) {
      last = *request.sent_at;
      candidates.last = id;
    }
  }
  return candidates;
}

std::set<api::RequestId> Quarantine::CountDeath(const std::string& key, RequestQueue& queue, ExitCause cause,
                                                const DeathTime& died, KeepAlive probation_time) const {
  const Candidates candidates = CandidatesFor(key, queue, died);
  const auto is_to_blame = [&](const QueuedRequest& request) {
    if (candidates.sent == 1) return true;
    if (candidates.newcomers > 0) return false;
    const bool on_probation = died.to < *request.sent_at + ProbationOf(request, probation_time);
    const bool alone = candidates.quarantined == 1;
    const bool all_had_longest_probation = candidates.had_longest_probation == candidates.quarantined;
    return (on_probation && alone) || (all_had_longest_probation && (on_probation || alone));
  };
  std::set<api::RequestId> failed;
  for (auto& [id, request] : queue.requests()) {
    if (!request.RunsIn(key)) continue;
    if (cause == ExitCause::kRefused) {
      failed.insert(id);
      continue;
    }
    if (!request.sent_at) continue;
    Suspicion& suspicion = request.suspicion;
    if (!std::exchange(suspicion.quarantined, true) || !request.WasSentBy(died.to)) continue;
    if (is_to_blame(request)) {
      if (cause == ExitCause::kCrashed || ++suspicion.probation_failures >= kProbationFailuresMax)
        failed.insert(id);
      continue;
    }
    suspicion.unexplained_deaths = std::min(suspicion.unexplained_deaths + 1, kUnexplainedDeathsMax);
    suspicion.tried_first = id == candidates.last;
  }
  return failed;
}

Quarantine Quarantine::OfNextRunner() const {
  Quarantine next;
  next.probations_ = probations_;
  next.last_probations_ = last_probations_;
  return next;
}

// ---- who is admitted ----

std::vector<api::RequestId> Quarantine::NextTurn(Waiting& waiting, RequestQueue& queue,
                                                 KeepAlive probation_time, Time now) {
  in_turn_.clear();
  std::set<QueuedRequest::Owner> quarantined;  // the owners of those that wait
  for (const api::RequestId id : waiting) {
    const QueuedRequest& request = queue.At(id);
    if (request.suspicion.quarantined) quarantined.insert(request.owner());
  }
  std::vector<api::RequestId> turn;
  if (quarantined.empty()) {
    last_probations_.clear();
    turn.assign(waiting.begin(), waiting.end());
    waiting.clear();
    return turn;
  }
  if (std::exchange(open_turn_is_next_, false)) {
    std::ranges::copy_if(waiting, std::back_inserter(turn),
                         [&](api::RequestId id) { return !quarantined.contains(queue.At(id).owner()); });
  }
  turn_ends_ = now + probation_time;
  if (turn.empty()) {
    turn.push_back(NextOnProbation(waiting, queue));
    QueuedRequest& request = queue.At(turn.front());
    request.suspicion.tried_first = false;
    last_probations_[request.client.party] = ++probations_;
    open_turn_is_next_ = true;
    turn_ends_ = now + ProbationOf(request, probation_time);
  }
  in_turn_.insert(turn.begin(), turn.end());
  std::erase_if(waiting, [this](api::RequestId id) { return in_turn_.contains(id); });
  return turn;
}

bool Quarantine::Sent(api::RequestId id, const QueuedRequest& request, KeepAlive probation_time) {
  if (!request.suspicion.quarantined || !in_turn_.contains(id)) return false;
  turn_ends_ = *request.sent_at + ProbationOf(request, probation_time);
  return true;
}

// REQUIRES: a quarantined request waits.
api::RequestId Quarantine::NextOnProbation(const Waiting& waiting, const RequestQueue& queue) const {
  std::optional<std::tuple<bool, uint64_t, api::RequestId>> first;
  for (const api::RequestId id : waiting) {
    const QueuedRequest& request = queue.At(id);
    if (!request.suspicion.quarantined) continue;
    const auto last_probation = last_probations_.find(request.client.party);
    const std::tuple rank(!request.suspicion.tried_first,
                          last_probation == last_probations_.end() ? 0 : last_probation->second, id);
    if (!first || rank < *first) first = rank;
  }
  return std::get<api::RequestId>(*first);
}

}  // namespace quire::scheduler
