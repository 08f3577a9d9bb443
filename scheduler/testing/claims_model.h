// How long models stay, told a second time, for the simulation of the scheduler: which parties have used a
// model, and until when each of them keeps it.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "scheduler/keep_alive_claims.h"

namespace quire::scheduler {

class ClaimsModel {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Parties = std::set<std::string>;

  explicit ClaimsModel(KeepAlive by_default) : by_default_(by_default) {}

  void Start(const std::string& key, const std::string& party, const std::optional<KeepAliveClaim>& said) {
    Claim& claim = claims_[key].try_emplace(party, Claim{.time = by_default_}).first->second;
    ++claim.running;
    if (!said) return;
    claim.time = said->keep_alive;
    claim.pin = said->keep_alive < KeepAlive::zero();
    claim.by_admin = said->by_admin;
  }
  void End(const std::string& key, const std::string& party, Time now) {
    Claim& claim = claims_.at(key).at(party);
    if (--claim.running == 0) claim.idle_since = now;
  }
  // Requests that the scheduler admitted and suspended in one plan were never seen to run: what they said is
  // not known.
  void Suspend(const std::string& key) { uncertain_.insert(key); }
  void Release(const std::string& key, const std::string& party) {
    const auto found = claims_.find(key);
    if (found == claims_.end() || !found->second.contains(party)) return;
    Claim& claim = found->second.at(party);
    claim.time = {};
    claim.pin = false;
    if (claim.running == 0) found->second.erase(party);
  }
  // The model is forgotten.
  void Clear(const std::string& key) {
    claims_.erase(key);
    uncertain_.erase(key);
  }

  // A party keeps it, other than `but`.
  bool IsKept(const std::string& key, const std::string& but, Time now) const {
    if (uncertain_.contains(key)) return false;
    return Any(key, [&](const std::string& party, const Claim& claim) {
      const bool never = claim.time < KeepAlive::zero();
      return party != but && (claim.running > 0 || never || claim.idle_since + claim.time > now);
    });
  }
  bool IsPinnedAgainst(const std::string& key, const Parties& waiting) const {
    return uncertain_.contains(key) || Any(key, [&](const std::string& party, const Claim& claim) {
             return claim.pin && (claim.by_admin || (waiting.size() == 1 && waiting.contains(party)));
           });
  }

 private:
  struct Claim {
    KeepAlive time{};
    bool pin = false;
    bool by_admin = false;
    int running = 0;
    Time idle_since{};
  };
  bool Any(const std::string& key, auto of) const {
    const auto found = claims_.find(key);
    return found != claims_.end() && std::ranges::any_of(found->second, [&](const auto& entry) {
             return of(entry.first, entry.second);
           });
  }

  const KeepAlive by_default_;
  std::map<std::string, std::map<std::string, Claim>> claims_;  // by model, by party
  std::set<std::string> uncertain_;                             // models
};

}  // namespace quire::scheduler
