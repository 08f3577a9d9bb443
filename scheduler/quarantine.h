// A model's requests whose runner died: which of them killed it, and which one is admitted to the next.
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
// the runner may be at them (Departures): who sends a request that kills and hangs up makes no other one
// fail. A quarantined candidate fails if it was on probation and there is no other candidate, or if the
// runner had no other request. While there is a newcomer nobody fails: its sender could make the requests of
// others fail. A death for which nobody fails is unexplained. It makes the next probations of its quarantined
// candidates longer, so that a slow killer dies in its own. The one that was sent last is tried first, so
// that it is alone in the next runner. When all candidates have the longest probation, the one on probation
// fails, and so does one that is alone after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/base/ids.h"
#include "scheduler/plan.h"
#include "scheduler/request_queue.h"

namespace quire::scheduler {

// When a runner may have been at requests that it was sent and that left it before their end: from when each
// was sent until a little after its client had left.
class Departures {
 public:
  // The runner learns of it when its step ends, and a preparation ends a little later.
  static constexpr std::chrono::seconds kAfter{2};

  // `progressed`: the runner had computed something for it. REQUIRES: nothing that left later was added
  // before.
  void Add(Time sent_at, Time left_at, bool progressed);
  // Whether one may have been the reason for what happened within that time.
  bool Cover(const DeathTime& died) const { return Covers(all_, died); }
  bool UnprovenCover(const DeathTime& died) const { return Covers(unproven_, died); }

 private:
  // Each begins behind the end of the one before, and has kAfter at least: together they reach back for
  // minutes.
  static constexpr size_t kSpansMax = 256;
  using Spans = std::deque<DeathTime>;

  static void AddTo(Spans& spans, Time begin, Time end);
  static bool Covers(const Spans& spans, const DeathTime& died);

  Spans all_, unproven_;
};

// Part of one model's record. I/O thread only.
class Quarantine {
 public:
  // The last turn is over: NextTurn() may be called.
  bool IsOver(Time now) const { return in_turn_.empty() || turn_ends_ <= now; }
  // Takes those of the next turn out of `waiting`: all of them while none is quarantined. REQUIRES: it is not
  // empty.
  std::vector<api::RequestId> NextTurn(Waiting& waiting, RequestQueue& queue, KeepAlive probation_time,
                                       Time now);
  // The turn's end while there is one.
  std::optional<Time> turn_ends() const {
    return in_turn_.empty() ? std::nullopt : std::optional(turn_ends_);
  }
  const std::set<api::RequestId>& in_turn() const { return in_turn_; }

  // The runner was sent the request. True: the turn ends at another time.
  bool Sent(api::RequestId id, const QueuedRequest& request, KeepAlive probation_time);
  // The runner computed something for it, or it is no longer there.
  void EndTurnOf(api::RequestId id) { in_turn_.erase(id); }
  // The request leaves a runner that may still be at it.
  void Depart(const QueuedRequest& request, Time now);
  // The runner takes nothing more.
  void EndTurn() { in_turn_.clear(); }
  // The runner of `key` died with all that it had. Returns those that fail for it.
  std::set<api::RequestId> CountDeath(const std::string& key, RequestQueue& queue, ExitCause cause,
                                      const DeathTime& died, KeepAlive probation_time) const;
  // What the next runner's begins with.
  Quarantine OfNextRunner() const;

 private:
  // Requests that may have ended their runner: it has computed nothing for them.
  struct Candidates {
    int32_t sent = 0;                   // to the runner, candidates or not
    int32_t quarantined = 0;            // candidates of an earlier death, too
    int32_t had_longest_probation = 0;  // of these
    int32_t newcomers = 0;              // of this one only, or their clients have left
    api::RequestId last{};              // quarantined, sent last
  };
  Candidates CandidatesFor(const std::string& key, const RequestQueue& queue, const DeathTime& died) const;
  api::RequestId NextOnProbation(const Waiting& waiting, const RequestQueue& queue) const;

  std::set<api::RequestId> in_turn_;  // while quarantined ones wait: admitted last, without progress
  Time turn_ends_{};                  // then others are admitted even so
  bool open_turn_is_next_ = false;
  uint64_t probations_ = 0;
  std::map<fair::PartyId, uint64_t> last_probations_;  // a later one has a larger number
  Departures departures_;
};

}  // namespace quire::scheduler
