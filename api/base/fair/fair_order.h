// Whose turn is next, by weight: one level of a FairQueue.
//
// Each account has a virtual time, which a cost of c moves by c / weight. It may have its next turn when that
// is not after the average, by weight, of all that wait. Of those that may, the one whose quantum would end
// first is next. So an account is never behind or ahead of its share by more than about a quantum for each
// turn at once, and one that asks for no more than it gets is owed nothing. ("Earliest eligible virtual
// deadline first", Stoica and Abdel-Wahab, 1995.) Unlike there, an account that comes and has had no more
// than its share goes first: who was idle begins at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ranges>

namespace quire::fair {

// One thread. Costs are nanoseconds, or bytes, or anything else that adds up.
class FairOrder {
 public:
  // All but the weight are the order's. It stays where it is while it waits or has a turn.
  struct Account {
    int64_t weight = 1;
    int64_t start = 0;   // its virtual time
    uint64_t place = 0;  // of accounts alike the lower one is first
    size_t turns = 0;    // that it has now
    bool waits = false;
    bool fresh = false;  // it came after a time without work, and has had no turn since
    bool ready = false;  // which of the two maps it is in
  };

  // A turn is taken to cost `quantum` until it ends: no turn costs much more.
  // `alternates`: accounts that come leave the others each other turn, as those that cost nothing to make.
  explicit FairOrder(int64_t quantum, bool alternates = false)
      : quantum_(quantum * kScale), alternates_(alternates) {}

  // Something of it waits from now on. REQUIRES: nothing did.
  void Enter(Account& account);
  // Nothing of it waits any more. REQUIRES: something did.
  void Withdraw(Account& account);
  // The first of those that wait and may go. Null: there is none.
  template <class MayGo>
  Account* First(MayGo may_go) {
    FindReady();
    using Accounts = std::ranges::subrange<Map::const_iterator>;
    const Map::const_iterator old = FirstOld();
    std::array parts{Accounts(ready_.begin(), old), Accounts(old, ready_.end()), Accounts(later_)};
    if (old_first_) std::ranges::rotate(parts, parts.begin() + 1);
    for (const Accounts& part : parts) {
      for (const auto& [key, account] : part) {
        if (may_go(*account)) return account;
      }
    }
    return nullptr;
  }
  // Its turn begins. REQUIRES: it waits; it still waits afterwards.
  void StartTurn(Account& account);
  // A turn of it has ended, which cost as much. REQUIRES: it has one.
  void EndTurn(Account& account, int64_t cost);
  // It has cost as much without a turn: it owes that from the average on. Needs no memory. REQUIRES: nothing
  // of it waits.
  void Charge(Account& account, int64_t cost);

  // It has work.
  static bool Active(const Account& account) { return account.waits || account.turns > 0; }
  // It has had more than its share lately: an account without work is forgotten only when it has not.
  bool Owes(const Account& account) const { return account.start > Now(); }
  // What it has had, as a cost for a weight of 1; of one without work, when it had some now.
  double TimeOf(const Account& account) const {
    const int64_t time = Active(account) || Owes(account) ? account.start : Now();
    return static_cast<double>(time) / kScale;
  }
  // Something of some account waits.
  bool waiting() const { return !ready_.empty() || !later_.empty(); }
  // No account has work: all of them may be forgotten, and are then new ones.
  bool idle() const { return weight_ == 0 && turns_ == 0; }

 private:
  static constexpr int64_t kScale = 64;  // units of virtual time
  using Map = std::map<std::array<uint64_t, 3>, Account*>;

  int64_t Now() const { return weight_ == 0 ? base_ : base_ + sum_ / weight_; }
  void Insert(Account& account, Map::node_type node = {});  // the node that it had, if it had one
  Map::node_type Remove(Account& account);
  Map::const_iterator FirstOld() const { return ready_.lower_bound({1, 0, 0}); }  // behind the fresh ones
  Map& MapOf(const Account& account) { return account.ready ? ready_ : later_; }
  Map::key_type KeyOf(const Account& account) const;
  void Move(Account& account, int64_t time);
  void Count(Account& account, int64_t sign);
  void Rebase();
  void FindReady();

  const int64_t quantum_;
  const bool alternates_;
  bool old_first_ = false;  // a fresh one had the last turn
  Map ready_;               // those whose time has come, the next one first
  Map later_;               // all others that wait, by their time
  size_t turns_ = 0;        // of all accounts
  // Sums over accounts that wait: their weights, and weight x (start - base).
  int64_t weight_ = 0;
  int64_t sum_ = 0;
  int64_t base_ = 0;
  uint64_t places_ = 0;
};

}  // namespace quire::fair
