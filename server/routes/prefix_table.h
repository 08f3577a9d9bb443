// Prefixes by owner and name, of which tenants have at most so much together. I/O thread only.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "api/base/fair/party.h"
#include "api/base/fair/quota.h"
#include "server/routes/slot_prefix.h"

namespace quire::server {

// Name: what an owner calls a prefix.
template <class Name>
class PrefixTable {
 public:
  // All prefixes together have at most `tokens_max`, with what they take beside their tokens.
  explicit PrefixTable(size_t tokens_max) : tokens_({.total = tokens_max}) {}

  // Null: there is none. Valid until the next call that changes something.
  const SlotPrefix* Find(const SlotOwner& owner, const Name& name) const {
    const auto found = entries_.find({owner, name});
    return found == entries_.end() ? nullptr : &found->second.prefix;
  }

  // Replaces the one of this name. Where there is no room the tenant with most loses what it put first.
  // False: none has more than this one would have, and nothing was replaced.
  bool Put(const SlotOwner& owner, const Name& name, SlotPrefix prefix) {
    const size_t cost = CostOf(owner, name, prefix);
    const auto found = entries_.find({owner, name});
    fair::Quota::Lease added(tokens_, PartyOf(owner));
    fair::Quota::Lease& lease = found == entries_.end() ? added : found->second.lease;
    while (const auto refusal = lease.GrowTo(cost)) {
      if (refusal->over == fair::PartyId()) return false;
      DropOldest(refusal->over);
    }
    Erase(owner, name);
    Insert(owner, name, std::move(prefix), cost);
    return true;
  }
  // The same, but the tenant itself makes room where no other does, and the prefix stays even if it is larger
  // than all of them may be.
  void PutInAnyCase(const SlotOwner& owner, const Name& name, SlotPrefix prefix) {
    Erase(owner, name);
    const size_t cost = CostOf(owner, name, prefix);
    fair::Quota::Lease lease(tokens_, PartyOf(owner));
    while (const auto refusal = lease.GrowTo(cost)) {
      const bool from_other = refusal->over != fair::PartyId();
      if (!from_other && ages_[lease.party()].empty()) break;
      DropOldest(from_other ? refusal->over : lease.party());
    }
    lease.ShrinkTo(0);
    Insert(owner, name, std::move(prefix), cost);
  }

  // Its tokens; 0 if there is none.
  size_t Erase(const SlotOwner& owner, const Name& name) {
    const auto found = entries_.find({owner, name});
    if (found == entries_.end()) return 0;
    const size_t tokens = found->second.prefix.tokens.size();
    const auto ages = ages_.find(found->second.lease.party());
    ages->second.erase(found->second.age);
    if (ages->second.empty()) ages_.erase(ages);
    entries_.erase(found);
    return tokens;
  }

 private:
  static constexpr size_t kEntryBytes = 768;  // nodes of maps and lists, and what an allocation adds
  using Key = std::pair<SlotOwner, Name>;
  struct Entry {
    SlotPrefix prefix;
    fair::Quota::Lease lease;  // of the tenant
    typename std::list<Key>::iterator age;
  };

  static fair::PartyId PartyOf(const SlotOwner& owner) { return fair::PartyNamed("tenant " + owner.tenant); }
  // In tokens: an entry takes memory beside them, for its names twice.
  static size_t CostOf(const SlotOwner& owner, const Name& name, const SlotPrefix& prefix) {
    size_t bytes = kEntryBytes + 2 * (owner.tenant.size() + owner.model.size()) + prefix.cache_salt.size();
    if constexpr (requires { name.size(); }) bytes += 2 * name.size();
    return prefix.tokens.size() + bytes / sizeof(api::TokenId);
  }

  void Insert(const SlotOwner& owner, const Name& name, SlotPrefix prefix, size_t cost) {
    fair::Quota::Lease lease(tokens_, PartyOf(owner));
    lease.SetTo(cost);
    std::list<Key> age(1, {owner, name});
    std::list<Key>& ages = ages_[lease.party()];
    entries_.emplace(age.front(), Entry{std::move(prefix), std::move(lease), age.begin()});
    ages.splice(ages.end(), age);
  }

  void DropOldest(const fair::PartyId& tenant) {
    const Key oldest = ages_.at(tenant).front();
    Erase(oldest.first, oldest.second);
  }

  fair::Quota tokens_;
  std::map<Key, Entry> entries_;
  std::map<fair::PartyId, std::list<Key>> ages_;  // of a tenant; put first at the front
};

}  // namespace quire::server
