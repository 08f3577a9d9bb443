// Weighted fair queueing between parties (api::Client::Party).
//
// Start-time fair queueing: each party has a virtual time that advances by tokens / weight; the party with
// the smallest virtual time is scheduled next. A party that was idle starts at the least of those that are
// not idle, so idling earns no credit. One whose readers all stall, or whose answers wait for something of
// their own, is idle too: its virtual time stands still, and others that start there would be ahead of all
// that go on. No clock, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "runner/engine/shares/step_plan.h"

namespace quire::runner::engine {

class FairShare {
 public:
  struct Request {
    const std::string* party = nullptr;
    bool goes_on =
        false;  // or would with a place; else its reader takes nothing, or it waits for something of its own
  };

  // One more request of the party waits or runs. `weight` > 0; the latest one said holds.
  void Enter(const std::string& party, double weight);
  void Exit(const std::string& party);  // REQUIRES: it entered
  // Before each step: all requests of all parties. A party of which none goes on is idle.
  void Update(std::span<const Request> requests);
  // REQUIRES: the party has a request.
  void Charge(const std::string& party, int64_t tokens);
  PartyState Of(const std::string& party) const;

  size_t parties() const { return parties_.size(); }  // with requests, or ahead of those that have

 private:
  struct Party {
    PartyState state;
    int64_t requests = 0;
    bool idle = true;
    bool goes_on = false;  // scratch of Update()
  };
  double Behind() const;  // the least virtual time of a party that is not idle
  void SetIdle(Party& party, bool idle) const;

  std::unordered_map<std::string, Party> parties_;
  double floor_ = 0;  // no party starts behind it
};

}  // namespace quire::runner::engine
