// Whoever waits for something of which there is little: parties (party.h) take turns, however many wait of
// each.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <string>
#include <string_view>

namespace quire::server {

// I/O thread only. Waiters are where they were added until they are called or removed.
template <class Waiter>
class PartyRotation {
 public:
  // Behind those of its party. Where there is no memory it throws, and the waiter is not added.
  void Add(const std::string& party, Waiter& waiter) {
    auto found = Find(party);
    if (found == parties_.end()) found = parties_.insert(parties_.end(), {.name = party});
    found->waiting.push_back(&waiter);
  }
  // REQUIRES: it waits.
  void Remove(std::string_view party, Waiter& waiter) {
    const auto found = Find(party);
    std::erase(found->waiting, &waiter);
    if (found->waiting.empty()) parties_.erase(found);
  }
  // The first of the next party, which goes behind all others. Null: nobody waits.
  Waiter* PopNext() {
    std::erase_if(parties_,
                  [](const Party& party) { return party.waiting.empty(); });  // there was no memory for one
    if (parties_.empty()) return nullptr;
    Party& party = parties_.front();
    Waiter* next = party.waiting.front();
    party.waiting.pop_front();
    parties_.splice(parties_.end(), parties_, parties_.begin());
    if (party.waiting.empty()) parties_.pop_back();
    return next;
  }

 private:
  struct Party {
    std::string name;
    std::deque<Waiter*> waiting = {};
  };
  std::list<Party>::iterator Find(std::string_view name) {
    return std::ranges::find(parties_, name, &Party::name);
  }

  std::list<Party> parties_;  // the first is the next
};

}  // namespace quire::server
