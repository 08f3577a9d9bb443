// Prefixes by owner and name, with what each tenant holds. I/O thread only.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "server/routes/slot_prefix.h"

namespace quire::server {

// Name: what an owner calls a prefix.
template <class Name>
class PrefixTable {
 public:
  // What an entry costs, in tokens: it takes memory beside them, for its names twice.
  static size_t CostOf(const SlotOwner& owner, const Name& name, const SlotPrefix& prefix) {
    size_t bytes = kEntryBytes + 2 * (owner.tenant.size() + owner.model.size()) + prefix.cache_salt.size();
    if constexpr (requires { name.size(); }) bytes += 2 * name.size();
    return prefix.tokens.size() + bytes / sizeof(api::TokenId);
  }

  size_t cost() const { return cost_; }
  size_t CostOf(const SlotOwner& owner, const Name& name) const {
    const auto found = entries_.find({owner, name});
    return found == entries_.end() ? 0 : CostOf(owner, name, found->second.prefix);
  }
  // The cost of all that the tenant has.
  size_t CostOf(const std::string& tenant) const {
    const auto found = tenants_.find(tenant);
    return found == tenants_.end() ? 0 : found->second.cost;
  }

  // Null: there is none. Valid until the next call that changes something.
  const SlotPrefix* Find(const SlotOwner& owner, const Name& name) const {
    const auto found = entries_.find({owner, name});
    return found == entries_.end() ? nullptr : &found->second.prefix;
  }

  // Replaces the one of this name. Where it throws std::bad_alloc, that one may be gone.
  void Put(const SlotOwner& owner, const Name& name, SlotPrefix prefix) {
    Erase(owner, name);
    const size_t cost = CostOf(owner, name, prefix);
    std::list<Key> age(1, {owner, name});
    Tenant& tenant = TenantOf(owner.tenant);
    entries_.emplace(Key{owner, name}, Entry{std::move(prefix), age.begin()});
    // Nothing below allocates.
    tenant.ages.splice(tenant.ages.end(), age);
    Charge(tenant, tenant.cost + cost);
    cost_ += cost;
  }

  // Its tokens; 0 if there is none.
  size_t Erase(const SlotOwner& owner, const Name& name) {
    const auto found = entries_.find({owner, name});
    if (found == entries_.end()) return 0;
    const size_t tokens = found->second.prefix.tokens.size();
    const size_t cost = CostOf(owner, name, found->second.prefix);
    const auto holder = tenants_.find(owner.tenant);
    Tenant& tenant = holder->second;
    tenant.ages.erase(found->second.age);
    Charge(tenant, tenant.cost - cost);
    if (tenant.ages.empty()) {
      by_cost_.erase(tenant.by_cost);
      tenants_.erase(holder);
    }
    entries_.erase(found);
    cost_ -= cost;
    return tokens;
  }

  // The tenant with most. REQUIRES: cost() > 0.
  const std::string& LargestTenant() const { return by_cost_.rbegin()->second; }
  // Drops what the tenant put first. REQUIRES: it has something.
  void DropOldest(const std::string& tenant) {
    const Key oldest = tenants_.at(tenant).ages.front();
    Erase(oldest.first, oldest.second);
  }

 private:
  static constexpr size_t kEntryBytes = 768;  // nodes of maps and lists, and what an allocation adds
  using Key = std::pair<SlotOwner, Name>;
  struct Entry {
    SlotPrefix prefix;
    typename std::list<Key>::iterator age;
  };
  using ByCost = std::set<std::pair<size_t, std::string>>;
  struct Tenant {
    size_t cost = 0;
    std::list<Key> ages;  // put first at the front
    typename ByCost::iterator by_cost;
  };

  Tenant& TenantOf(const std::string& name) {
    const auto found = tenants_.find(name);
    if (found != tenants_.end()) return found->second;
    const auto by_cost = by_cost_.emplace(0, name).first;
    Tenant& tenant = tenants_[name];
    tenant.by_cost = by_cost;
    return tenant;
  }

  void Charge(Tenant& tenant, size_t cost) {
    auto node = by_cost_.extract(tenant.by_cost);
    node.value().first = tenant.cost = cost;
    tenant.by_cost = by_cost_.insert(std::move(node)).position;
  }

  std::map<Key, Entry> entries_;
  std::map<std::string, Tenant> tenants_;
  ByCost by_cost_;
  size_t cost_ = 0;
};

}  // namespace quire::server
