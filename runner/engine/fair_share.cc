#include "runner/engine/fair_share.h"

#include <algorithm>
#include <limits>

namespace quire::runner::engine {

double FairShare::Behind() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.requests > 0) least = std::min(least, tenant.state.virtual_time);
  }
  return least == std::numeric_limits<double>::infinity() ? floor_ : least;
}

void FairShare::Enter(const std::string& tenant, double weight) {
  floor_ = std::max(floor_, Behind());
  Tenant& entry = tenants_[tenant];
  if (entry.requests++ == 0) entry.state.virtual_time = std::max(entry.state.virtual_time, floor_);
  entry.state.weight = weight;
}

void FairShare::Exit(const std::string& tenant) {
  --tenants_.at(tenant).requests;
  floor_ = std::max(floor_, Behind());
  // A tenant that is not ahead of the others would enter at the floor anyway.
  std::erase_if(tenants_, [this](const auto& entry) {
    return entry.second.requests == 0 && entry.second.state.virtual_time <= floor_;
  });
  if (std::ranges::none_of(tenants_, [](const auto& entry) { return entry.second.requests > 0; })) {
    tenants_.clear();
    floor_ = 0;
  }
}

void FairShare::Charge(const std::string& tenant, int64_t tokens) {
  TenantState& state = tenants_.at(tenant).state;
  state.virtual_time += static_cast<double>(tokens) / state.weight;
}

TenantState FairShare::Of(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found != tenants_.end() ? found->second.state : TenantState{.virtual_time = floor_};
}

}  // namespace quire::runner::engine
