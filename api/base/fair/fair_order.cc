#include "api/base/fair/fair_order.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace quire::fair {

FairOrder::Map::key_type FairOrder::KeyOf(const Account& account) const {
  const auto start = static_cast<uint64_t>(account.start);
  if (!account.ready) return {start, 0, account.place};
  if (account.fresh) return {0, 0, account.place};
  return {1, start + static_cast<uint64_t>(quantum_ / account.weight), account.place};
}

void FairOrder::Insert(Account& account, Map::node_type node) {
  account.ready = account.fresh || account.start <= Now();
  if (node.empty()) {
    MapOf(account).emplace(KeyOf(account), &account);
    return;
  }
  node.key() = KeyOf(account);
  MapOf(account).insert(std::move(node));
}

FairOrder::Map::node_type FairOrder::Remove(Account& account) {
  return MapOf(account).extract(KeyOf(account));
}

// Adds an account to those that wait, or takes it out. The base is the average then, so that the product is
// that of a debt, which is small, and a large weight.
void FairOrder::Count(Account& account, int64_t sign) {
  if (weight_ != 0) Rebase();
  weight_ += sign * account.weight;
  sum_ += sign * account.weight * (account.start - base_);
  if (weight_ == 0) sum_ = 0;
}

// REQUIRES: some account waits.
void FairOrder::Rebase() {
  const int64_t shift = sum_ / weight_;
  base_ += shift;
  sum_ -= shift * weight_;
}

// REQUIRES: it is in no map.
void FairOrder::Move(Account& account, int64_t time) {
  constexpr int64_t kSumMax = int64_t{1} << 56;
  account.start += time;
  if (!account.waits) return;
  sum_ += account.weight * time;
  if (std::abs(sum_) >= kSumMax) Rebase();
}

void FairOrder::Enter(Account& account) {
  if (weight_ == 0) base_ = std::max(base_, account.start);
  account.fresh = account.turns == 0 && account.start <= Now();
  account.start = std::max(account.start, Now());
  Count(account, 1);
  account.place = ++places_;
  account.waits = true;
  Insert(account);
}

void FairOrder::Withdraw(Account& account) {
  Remove(account);
  account.waits = false;
  Count(account, -1);
}

void FairOrder::FindReady() {
  const int64_t now = Now();
  while (!later_.empty() && later_.begin()->second->start <= now) {
    auto node = later_.extract(later_.begin());
    Account& account = *node.mapped();
    Insert(account, std::move(node));
  }
}

// An account that could not go for a while, whatever the reason, is not owed all of that time.
void FairOrder::StartTurn(Account& account) {
  constexpr int64_t kQuantaOwed = 8;  // more than an account is behind while it may always go
  auto node = Remove(account);
  old_first_ = alternates_ && account.fresh && (FirstOld() != ready_.end() || !later_.empty());
  const int64_t quantum = quantum_ / account.weight;
  const int64_t lost = std::max<int64_t>(Now() - kQuantaOwed * quantum - account.start, 0);
  Move(account, lost + quantum);
  ++account.turns;
  ++turns_;
  account.fresh = false;
  account.place = ++places_;
  Insert(account, std::move(node));
}

void FairOrder::EndTurn(Account& account, int64_t cost) {
  auto node = account.waits ? Remove(account) : Map::node_type();
  Move(account, (cost * kScale) / account.weight - quantum_ / account.weight);
  --account.turns;
  --turns_;
  if (account.waits) Insert(account, std::move(node));
}

void FairOrder::Charge(Account& account, int64_t cost) {
  if (weight_ == 0) base_ = std::max(base_, account.start);
  account.start = std::max(account.start, Now()) + (cost * kScale) / account.weight;
  if (weight_ == 0) base_ = std::max(base_, account.start);
}

}  // namespace quire::fair
