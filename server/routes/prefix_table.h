// Prefixes by owner and name, of which parties have at most so much together. I/O thread only.
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
  explicit PrefixTable(size_t tokens_max) : tokens_max_(tokens_max), tokens_({.total = tokens_max}) {}

  // Null: there is none. Valid until the next call that changes something.
  const SlotPrefix* Find(const SlotOwner& owner, const Name& name) const {
    const auto found = entries_.find({owner, name});
    return found == entries_.end() ? nullptr : &found->second.prefix;
  }

  // Replaces the one of this name; its memory is the party's. Where there is no room the party that is
  // furthest above its share loses what it put first. False: there is none, and nothing was replaced.
  bool Put(const SlotOwner& owner, const Name& name, SlotPrefix prefix, const fair::PartyId& party) {
    return PutWithin(owner, name, std::move(prefix), party, /*gives_own=*/false);
  }
  // The same, but the party itself makes room where no other does. False: the old one is gone, too.
  bool PutFirst(const SlotOwner& owner, const Name& name, SlotPrefix prefix, const fair::PartyId& party) {
    Erase(owner, name);
    return PutWithin(owner, name, std::move(prefix), party, /*gives_own=*/true);
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
    fair::Quota::Lease lease;
    typename std::list<Key>::iterator age;
  };

  // In tokens: an entry takes memory beside them, for its names twice.
  static size_t CostOf(const SlotOwner& owner, const Name& name, const SlotPrefix& prefix) {
    size_t bytes = kEntryBytes + 2 * (owner.tenant.size() + owner.model.size()) + prefix.cache_salt.size();
    if constexpr (requires { name.size(); }) bytes += 2 * name.size();
    return prefix.tokens.size() + bytes / sizeof(api::TokenId);
  }

  bool PutWithin(const SlotOwner& owner, const Name& name, SlotPrefix prefix, const fair::PartyId& party,
                 bool gives_own) {
    const size_t cost = CostOf(owner, name, prefix);
    if (cost > tokens_max_) return false;
    const auto found = entries_.find({owner, name});
    fair::Quota::Lease added(tokens_, party);
    const bool grows = found != entries_.end() && found->second.lease.party() == party;
    fair::Quota::Lease& lease = grows ? found->second.lease : added;
    while (const auto refusal = lease.GrowTo(cost)) {
      const bool from_other = refusal->over != fair::PartyId();
      if (!from_other && (!gives_own || !ages_.contains(party))) return false;
      DropOldest(from_other ? refusal->over : party);
    }
    added.ShrinkTo(0);
    Erase(owner, name);
    Insert(owner, name, std::move(prefix), party, cost);
    return true;
  }

  void Insert(const SlotOwner& owner, const Name& name, SlotPrefix prefix, const fair::PartyId& party,
              size_t cost) {
    fair::Quota::Lease lease(tokens_, party);
    lease.SetTo(cost);
    std::list<Key> age(1, {owner, name});
    std::list<Key>& ages = ages_[party];
    entries_.emplace(age.front(), Entry{std::move(prefix), std::move(lease), age.begin()});
    ages.splice(ages.end(), age);
  }

  void DropOldest(const fair::PartyId& party) {
    const Key oldest = ages_.at(party).front();
    Erase(oldest.first, oldest.second);
  }

  const size_t tokens_max_;
  fair::Quota tokens_;
  std::map<Key, Entry> entries_;
  std::map<fair::PartyId, std::list<Key>> ages_;  // put first at the front
};

}  // namespace quire::server
