// Weighted fair queueing between parties (api::Client::Party).
//
// Start-time fair queueing: each party has a virtual time that advances by tokens / weight; the party with
// the smallest virtual time is scheduled next. A party that was idle starts at the current minimum, so
// idling earns no credit. No clock, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "runner/engine/step_plan.h"

namespace quire::runner::engine {

class FairShare {
 public:
  // One more request of the party waits or runs. `weight` > 0; the latest one said holds.
  void Enter(const std::string& party, double weight);
  void Exit(const std::string& party);  // REQUIRES: it entered
  // REQUIRES: the party has a request.
  void Charge(const std::string& party, int64_t tokens);
  PartyState Of(const std::string& party) const;

  size_t parties() const { return parties_.size(); }  // with requests, or ahead of those that have

 private:
  struct Party {
    PartyState state;
    int64_t requests = 0;
  };
  double Behind() const;  // the least virtual time of a party with requests

  std::unordered_map<std::string, Party> parties_;
  double floor_ = 0;  // no party enters behind it
};

}  // namespace quire::runner::engine
