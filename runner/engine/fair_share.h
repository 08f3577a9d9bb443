// Weighted fair queueing between tenants (API keys).
//
// Start-time fair queueing: each tenant has a virtual time that advances by tokens / weight; the tenant with
// the smallest virtual time is scheduled next. A tenant that was idle starts at the current minimum, so
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
  // One more request of the tenant waits or runs. `weight` > 0; the latest one said holds.
  void Enter(const std::string& tenant, double weight);
  void Exit(const std::string& tenant);  // REQUIRES: it entered
  // REQUIRES: the tenant has a request.
  void Charge(const std::string& tenant, int64_t tokens);
  TenantState Of(const std::string& tenant) const;

  size_t tenants() const { return tenants_.size(); }  // with requests, or ahead of those that have

 private:
  struct Tenant {
    TenantState state;
    int64_t requests = 0;
  };
  double Behind() const;  // the least virtual time of a tenant with requests

  std::unordered_map<std::string, Tenant> tenants_;
  double floor_ = 0;  // no tenant enters behind it
};

}  // namespace quire::runner::engine
