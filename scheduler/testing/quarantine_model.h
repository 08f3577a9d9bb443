// The rules of the quarantine, told a second time, for the simulation of the scheduler: who may be admitted
// while requests wait that were in a runner when it died, and how often others may go first.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/base/ids.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler {

class QuarantineModel {
 public:
  struct Waiting {
    api::RequestId id;
    std::pair<std::string, std::string> owner;  // a party, and its member
    bool quarantined = false;
  };

  // `waiting` are the requests of the model that waited until then, `id` among them; `one_runs`: a
  // quarantined one runs. What is wrong with it; empty if nothing is.
  std::string Admit(const std::string& key, api::RequestId id, const std::vector<Waiting>& waiting, Time now,
                    bool one_runs) {
    const Waiting& one = *std::ranges::find(waiting, id, &Waiting::id);
    const bool in_quarantine = std::ranges::any_of(waiting, &Waiting::quarantined);
    const bool goes_first = one.quarantined && one_goes_first_.contains(key);
    const bool overtakes = std::ranges::any_of(waiting, [&](const Waiting& other) {
      return other.id < id && (!in_quarantine || other.owner == one.owner) &&
             (other.quarantined || !one.quarantined);
    });
    if (overtakes && !goes_first) return "a younger request was admitted before an older one";
    Turn& turn = turns_[key];
    const bool joins = !one.quarantined && turn.kind == Turn::kOpen && turn.began == now;
    if (!joins && GoesOn(key, now, kProbation)) return "a request was admitted in another's turn";
    if (!in_quarantine) {
      Reset(key);
      if (!one_runs) slow_.erase(key);  // one whose runner dies before it was sent is as slow later
      turns_.erase(key);
      return "";
    }
    if (one.quarantined) return StartProbation(key, one, waiting, now);
    if (IsBehind(one, waiting)) return "a request was admitted before its owner's quarantined ones";
    if (!joins && turn.kind != Turn::kProbation) return "an open turn does not follow a probation";
    if (!joins) turn = {.kind = Turn::kOpen, .began = now};
    turn.unproven.insert(id);
    passed_over_[key].erase(id);
    return "";
  }
  // The runner was sent it: a probation begins again.
  void Send(const std::string& key, api::RequestId id, Time now) {
    const auto turn = turns_.find(key);
    if (turn == turns_.end() || turn->second.kind != Turn::kProbation || !turn->second.unproven.contains(id))
      return;
    turn->second.began = now;
  }
  // Something was computed for the request, or it is gone.
  void Prove(const std::string& key, api::RequestId id) {
    const auto turn = turns_.find(key);
    if (turn != turns_.end()) turn->second.unproven.erase(id);
    passed_over_[key].erase(id);
  }
  // `unexplained`: it died, and not every candidate of an earlier death failed.
  void EndRunner(const std::string& key, bool unexplained) {
    turns_.erase(key);
    passed_over_.erase(key);
    if (!unexplained) return;
    one_goes_first_.insert(key);
    slow_.insert(key);
  }
  // Probations may have begun that nobody saw.
  void Reset(const std::string& key) { since_probation_.erase(key); }

  // A turn of which something may still come: others wait.
  bool IsTurn(const std::string& key, Time now) const {
    return GoesOn(key, now, slow_.contains(key) ? kLongestProbation : kProbation);
  }
  uint64_t checked() const { return checked_; }

 private:
  static constexpr auto kProbation = std::chrono::seconds(2);
  static constexpr auto kLongestProbation = std::chrono::seconds(32);
  struct Turn {
    enum Kind : uint8_t { kNone, kProbation, kOpen };
    Kind kind = kNone;
    Time began{};
    std::set<api::RequestId> unproven = {};
  };

  static bool IsBehind(const Waiting& one, const std::vector<Waiting>& waiting) {
    return std::ranges::any_of(
        waiting, [&one](const Waiting& other) { return other.quarantined && other.owner == one.owner; });
  }
  bool GoesOn(const std::string& key, Time now, KeepAlive probation) const {
    const auto turn = turns_.find(key);
    return turn != turns_.end() && !turn->second.unproven.empty() && now < turn->second.began + probation;
  }
  std::string StartProbation(const std::string& key, const Waiting& one, const std::vector<Waiting>& waiting,
                             Time now) {
    Turn& turn = turns_[key];
    const bool goes_first = one_goes_first_.erase(key) != 0;
    std::set<std::string> others;
    for (const Waiting& other : waiting) {
      if (other.quarantined && other.owner.first != one.owner.first) others.insert(other.owner.first);
      if (IsBehind(other, waiting)) continue;
      if (turn.kind == Turn::kProbation) return "a probation follows a probation though others wait";
      ++checked_;
      if (++passed_over_[key][other.id] > 1) return "a request waits for a second probation of others";
    }
    auto& since = since_probation_[key];
    for (const std::string& party : others) {
      if (goes_first) continue;
      ++checked_;
      if (++since[party][one.owner.first] > 1) return "a party waits for a second probation of another one";
    }
    since[one.owner.first].clear();
    turn = {.kind = Turn::kProbation, .began = now, .unproven = {one.id}};
    return "";
  }

  std::map<std::string, Turn> turns_;  // by model: the last one of its runner
  std::map<std::string, std::map<api::RequestId, int>> passed_over_;
  // By model and party: the probations of other parties since its own, while it had a request in quarantine.
  std::map<std::string, std::map<std::string, std::map<std::string, int>>> since_probation_;
  std::set<std::string> one_goes_first_;  // models: the next probation is out of turn
  std::set<std::string> slow_;            // models whose probations may be longer
  uint64_t checked_ = 0;
};

}  // namespace quire::scheduler
