#include "scheduler/keep_alive_claims.h"

#include <algorithm>

namespace quire::scheduler {

void KeepAliveClaims::Start(const fair::PartyId& party, const std::optional<KeepAliveClaim>& said,
                            KeepAlive by_default) {
  const auto [position, is_new] = claims_.try_emplace(party);
  Claim& claim = position->second;
  ++claim.running;
  if (is_new) claim.keep_alive = by_default;
  if (said) {
    claim.keep_alive = said->keep_alive;
    claim.pins = said->keep_alive < KeepAlive::zero();
    claim.by_admin = said->by_admin;
  }
  if (claims_.size() > kPartiesMax) DropFirstToEnd();
}

void KeepAliveClaims::DropFirstToEnd() {
  auto first = claims_.end();
  for (auto one = claims_.begin(); one != claims_.end(); ++one) {
    const Claim& claim = one->second;
    if (claim.running > 0 || claim.by_admin) continue;
    const auto order = [](const Claim& idle) { return std::pair(EndOf(idle, {}), idle.idle_since); };
    if (first == claims_.end() || order(claim) < order(first->second)) first = one;
  }
  if (first != claims_.end()) claims_.erase(first);
}

void KeepAliveClaims::End(const fair::PartyId& party, Time now) {
  const auto found = claims_.find(party);
  if (found == claims_.end() || found->second.running == 0) return;
  if (--found->second.running == 0) found->second.idle_since = now;
}

void KeepAliveClaims::EndAll(Time now) {
  for (auto& [party, claim] : claims_) {
    if (claim.running > 0) claim.idle_since = now;
    claim.running = 0;
  }
}

void KeepAliveClaims::Release(const fair::PartyId& party) {
  const auto found = claims_.find(party);
  if (found == claims_.end()) return;
  if (found->second.running == 0) {
    claims_.erase(found);
    return;
  }
  found->second.keep_alive = KeepAlive::zero();
  found->second.pins = false;
}

KeepAliveClaims::Time KeepAliveClaims::EndOf(const Claim& claim, Time now) {
  const Time idle_since = claim.running > 0 ? now : claim.idle_since;
  const bool never = claim.keep_alive < KeepAlive::zero() || claim.keep_alive > Time::max() - idle_since;
  return never ? kNever : idle_since + claim.keep_alive;
}

std::optional<KeepAliveClaims::Time> KeepAliveClaims::ExpiresAt(Time now) const {
  std::optional<Time> last;
  for (const auto& [party, claim] : claims_) last = std::max(last.value_or(Time::min()), EndOf(claim, now));
  return last;
}

bool KeepAliveClaims::HasOther(const fair::PartyId& party, Time now) const {
  return std::ranges::any_of(claims_, [&](const auto& entry) {
    return entry.first.name() != party.name() && (entry.second.running > 0 || EndOf(entry.second, now) > now);
  });
}

bool KeepAliveClaims::IsPinned() const {
  return std::ranges::any_of(claims_, [](const auto& entry) { return entry.second.pins; });
}

bool KeepAliveClaims::IsPinnedByAdmin() const {
  return std::ranges::any_of(claims_,
                             [](const auto& entry) { return entry.second.pins && entry.second.by_admin; });
}

bool KeepAliveClaims::IsPinnedAgainst(const Parties& waiting) const {
  return std::ranges::any_of(claims_, [&waiting](const auto& entry) {
    const auto& [party, claim] = entry;
    const bool theirs = waiting.empty() || (waiting.size() == 1 && waiting.contains(party));
    return claim.pins && (claim.by_admin || theirs);
  });
}

int32_t KeepAliveClaims::running() const {
  int32_t running = 0;
  for (const auto& [party, claim] : claims_) running += claim.running;
  return running;
}

}  // namespace quire::scheduler
