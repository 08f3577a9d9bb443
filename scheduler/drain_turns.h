// How long a model goes on that must make room.
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
// Not the quanta of a fair queue: what a turn costs others grows as it gets shorter, since loads and what is
// computed again do not shrink with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/model_slots.h"
#include "scheduler/plan.h"
#include "scheduler/request_queue.h"

namespace quire::scheduler {

// Owned by the scheduler; I/O thread only.
class DrainTurns {
 public:
  // An owner that waits for room.
  struct Waiter {
    KeepAlive longest_run{};       // of all its requests
    int32_t whole_turns_lost = 0;  // of those that wait for room: the most
  };
  using Waiters = std::map<QueuedRequest::Owner, Waiter>;

  DrainTurns(const SchedulerOptions& options, RequestQueue& queue, ModelSlots& slots)
      : options_(options), queue_(queue), slots_(slots) {}

  // Who waits for these models.
  Waiters WaitersFor(const std::vector<const Model*>& in_need, Time now) const;
  // Another model drains in the place of one that did, such as one that is unloaded by name: who waits does
  // not wait for a turn from its beginning again.
  void PassOn(Time now);
  // Whether the model may admit what waits for it. One that drains and has had its turn gives up what it
  // still runs; before, it admits something after each drain_pause.
  bool MayAdmit(Models::iterator model, const Waiters& waiters, Time now, Plan& plan);

 private:
  void Suspend(Models::iterator model, Time now, Plan& plan);
  void CountTurn(QueuedRequest& request, Time now) const;
  KeepAlive WholeTurn(int32_t doublings) const;
  KeepAlive TurnOf(const std::string& key, const Waiters& waiters) const;
  Time FirstTurnsEnd(const std::string& key, Time draining_since) const;

  const SchedulerOptions& options_;
  RequestQueue& queue_;
  ModelSlots& slots_;
  uint64_t suspensions_ = 0;
};

}  // namespace quire::scheduler
