// Who is next: a queue that parties share by weight, and within a party its members alike, however many items
// each has. Items of one member keep their order. Members that come leave the others of their party each
// other turn.
//
// Guarantees, for `turns` at once and turns that cost at most a quantum (fair_queue_test.cc):
// - Share: over any interval in which a party always has items that may go, it gets its part by weight of
//   what all turns cost, less turns + 4 quanta.
// - Start: a party without debt that comes waits for the turns under way, and for those that came before it.
//
// It has no bound of its own: an item belongs to something that is bounded. Where memory is lacking the
// process ends: half a change would lose an item.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "api/base/fair/fair_order.h"
#include "api/base/fair/party.h"

namespace quire::fair {

// One thread, or under its owner's mutex.
template <class T>
class FairQueue {
 public:
  // Whose item was taken; charged once.
  struct Turn {
    PartyId party;
    uint64_t member = 0;
  };
  struct Next {
    T item;
    Turn turn;
  };

  explicit FairQueue(int64_t quantum) : quantum_(quantum), order_(quantum) {}

  void Push(const PartyId& party, uint64_t member, T item) noexcept {
    Party& owner = parties_.try_emplace(party.number(), party, quantum_).first->second;
    Member& own = owner.members.try_emplace(member).first->second;
    own.id = member;
    Insert(owner, own, own.items.end(), std::move(item));
  }

  // The next item of which `may_go(party, member)` says so, or `may_go(party, member, item)`; its turn ends
  // with Charge() or Return().
  template <class MayGo>
  std::optional<Next> Pop(MayGo may_go) noexcept {
    const auto member_of = [&may_go](Party& party) {
      return static_cast<Member*>(party.order.First([&](const FairOrder::Account& account) {
        const auto& member = static_cast<const Member&>(account);
        if constexpr (std::is_invocable_v<MayGo&, const PartyId&, uint64_t, const T&>) {
          return may_go(party.id, member.id, member.items.front());
        } else {
          return may_go(party.id, member.id);
        }
      }));
    };
    Member* member = nullptr;
    auto* party = static_cast<Party*>(order_.First([&](FairOrder::Account& account) {
      member = member_of(static_cast<Party&>(account));
      return member != nullptr;
    }));
    if (party == nullptr) return std::nullopt;
    Next next{std::move(member->items.front()), {party->id, member->id}};
    order_.StartTurn(*party);
    party->order.StartTurn(*member);
    member->items.pop_front();
    --size_;
    WithdrawIfEmpty(*party, *member);
    return next;
  }
  std::optional<Next> Pop() {
    return Pop([](const PartyId&, uint64_t) { return true; });
  }

  void Charge(const Turn& turn, int64_t cost) noexcept {
    Party& party = parties_.find(turn.party.number())->second;
    party.order.EndTurn(party.members.find(turn.member)->second, cost);
    order_.EndTurn(party, cost);
    Sweep(party);
  }

  // As Charge(), of an item that is not done: it is the next one of its member again.
  void Return(const Turn& turn, T item, int64_t cost) noexcept {
    Party& party = parties_.find(turn.party.number())->second;
    Member& member = party.members.find(turn.member)->second;
    Insert(party, member, member.items.begin(), std::move(item));
    Charge(turn, cost);
  }

  // Takes an item that is equal out. False: it does not wait.
  bool Remove(const PartyId& party, uint64_t member, const T& item) {
    const auto owner = parties_.find(party.number());
    if (owner == parties_.end()) return false;
    const auto own = owner->second.members.find(member);
    return own != owner->second.members.end() &&
           RemoveFrom(owner->second, own->second, [&item](const T& one) { return one == item; });
  }
  // The same of the first item of anybody that `matches`; linear in all items.
  template <class Matches>
  bool RemoveFirst(Matches matches) {
    for (auto& [number, party] : parties_) {
      for (auto& [id, member] : party.members) {
        if (RemoveFrom(party, member, matches)) return true;
      }
    }
    return false;
  }

  size_t size() const { return size_; }
  // Items of the member that wait.
  size_t WaitingOf(const PartyId& party, uint64_t member) const {
    const auto owner = parties_.find(party.number());
    if (owner == parties_.end()) return 0;
    const auto own = owner->second.members.find(member);
    return own == owner->second.members.end() ? 0 : own->second.items.size();
  }
  // Parties that have items or turns, or have had more than their share.
  size_t parties() const { return parties_.size(); }

 private:
  struct Member : FairOrder::Account {
    uint64_t id = 0;
    std::deque<T> items = {};
  };
  struct Party : FairOrder::Account {
    Party(const PartyId& party, int64_t quantum)
        : Account{.weight = party.weight()}, id(party), order(quantum, true) {}
    const PartyId id;
    FairOrder order;
    std::map<uint64_t, Member> members = {};
    size_t members_max = kFew;  // more are looked through
  };
  static constexpr size_t kFew = 16;

  void Insert(Party& party, Member& member, typename std::deque<T>::iterator at, T item) {
    member.items.insert(at, std::move(item));
    ++size_;
    if (!member.waits) party.order.Enter(member);
    if (!party.waits) order_.Enter(party);
  }

  template <class Matches>
  bool RemoveFrom(Party& party, Member& member, Matches matches) {
    const auto found = std::ranges::find_if(member.items, matches);
    if (found == member.items.end()) return false;
    member.items.erase(found);
    --size_;
    WithdrawIfEmpty(party, member);
    Sweep(party);
    return true;
  }

  void WithdrawIfEmpty(Party& party, Member& member) {
    if (!member.items.empty()) return;
    party.order.Withdraw(member);
    if (!party.order.waiting()) order_.Withdraw(party);
  }

  // Drops what has no work and owes nothing, when there are twice as many as were left the last time.
  template <class Map>
  static void Sweep(const FairOrder& order, Map& map, size_t& entries_max) {
    if (order.idle()) map.clear();
    if (map.size() <= entries_max) return;
    std::erase_if(
        map, [&order](const auto& one) { return !FairOrder::Active(one.second) && !order.Owes(one.second); });
    entries_max = std::max(kFew, 2 * map.size());
  }
  void Sweep(Party& party) {
    Sweep(party.order, party.members, party.members_max);
    Sweep(order_, parties_, parties_max_);
  }

  const int64_t quantum_;
  FairOrder order_;
  std::map<uint64_t, Party> parties_;  // by number
  size_t parties_max_ = kFew;          // more are looked through
  size_t size_ = 0;
};

}  // namespace quire::fair
