// The requests of the simulation of the scheduler, as the clients and runners see them, and what is to be
// expected of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/base/fair/party.h"
#include "api/base/ids.h"
#include "scheduler/scheduler.h"
#include "scheduler/testing/claims_model.h"
#include "scheduler/testing/quarantine_model.h"

namespace quire::scheduler {

class SimulatedRequests {
 protected:
  using RequestId = api::RequestId;
  using PartyMember = std::pair<std::string, std::string>;  // a party, and its member
  struct Places {
    int32_t all = 0;
    int32_t of_model = 0;  // 0: no limit of its own
  };

  static MemoryEstimate EstimateOf(const std::string& key) {
    const int64_t size = 15 * (key[0] - 'a' + 1);  // the largest never fits with its caches
    return {.fixed_bytes = size, .cache_bytes = 40, .cache_min_bytes = 10};
  }
  RequestId OldestWaiting(const std::string& key) const {
    for (const auto& [id, model] : waiting_) {
      if (model == key) return id;
    }
    return Plan::kNoRequest;
  }
  std::vector<QuarantineModel::Waiting> WaitingFor(const std::string& wanted) const {
    std::vector<QuarantineModel::Waiting> requests;
    for (const auto& [id, key] : waiting_) {
      if (key == wanted) requests.push_back({id, owners_.at(id), quarantined_.contains(id)});
    }
    return requests;
  }
  bool AnyRuns(const std::string& key, auto of) const {
    return std::ranges::any_of(running_,
                               [&](const auto& entry) { return entry.second == key && of(entry.first); });
  }
  bool RunsInQuarantine(const std::string& key) const {
    return AnyRuns(key, [this](RequestId id) { return quarantined_.contains(id); });
  }
  // The only one that the runner has, and that nobody has left lately.
  bool IsAlone(const std::string& key, Time now) const {
    return !IsLately(left_at_, key, now) && std::ranges::count_if(running_, [&](const auto& entry) {
                                              return entry.second == key && sent_.contains(entry.first);
                                            }) == 1;
  }
  // Something that has not been in a runner that died, or whose client left, and for which nothing has been
  // computed.
  bool HasNewcomer(const std::string& key, Time now) const {
    return IsLately(left_unproven_at_, key, now) || AnyRuns(key, [this](RequestId id) {
             return sent_.contains(id) && !quarantined_.contains(id) && !progressed_.contains(id);
           });
  }
  // With a runner that died.
  bool MayFail(RequestId id, const std::string& key, Time now) const {
    return quarantined_.contains(id) && sent_.contains(id) && (IsAlone(key, now) || !HasNewcomer(key, now));
  }
  // A runner is done with a request a little later than its client.
  static bool IsLately(const std::map<std::string, Time>& times, const std::string& key, Time now) {
    const auto found = times.find(key);
    return found != times.end() && now - found->second <= std::chrono::seconds(2);
  }
  // Its client leaves, or does not wait for it any more. REQUIRES: it runs.
  void RecordDeparture(RequestId id, Time now) {
    if (!sent_.contains(id)) return;
    left_at_[running_.at(id)] = now;
    if (!progressed_.contains(id)) left_unproven_at_[running_.at(id)] = now;
  }
  void EraseDepartures(const std::string& key) {
    left_at_.erase(key);
    left_unproven_at_.erase(key);
  }
  bool HasQuarantinedBut(const std::vector<RequestId>& lost, const std::string& key) const {
    return AnyRuns(key, [&](RequestId id) {
      return sent_.contains(id) && quarantined_.contains(id) && std::ranges::find(lost, id) == lost.end();
    });
  }
  ClaimsModel::Parties PartiesWaitingFor(const std::string& wanted) const {
    ClaimsModel::Parties parties;
    for (const auto& [id, key] : waiting_) {
      if (key == wanted) parties.insert(owners_.at(id).first);
    }
    return parties;
  }
  template <class List>
  bool Any(const List& list, const std::string& party, auto of) const {
    return std::ranges::any_of(list, [&](const auto& entry) {
      return owners_.at(entry.first).first == party && of(entry.first, entry.second);
    });
  }
  // The party has requests for another model, or had some until this plan.
  bool AsksForMore(const std::string& party, const std::string& key) const {
    const auto other = [&key](RequestId, const std::string& model) { return model != key; };
    return dropped_.contains(party) || Any(waiting_, party, other) || Any(running_, party, other);
  }
  // No request of the party, or of the member, has ever run, of those that there are.
  bool HasNeverRun(const PartyMember& owner) const {
    const auto ran = [this, &owner](RequestId id, const auto&) {
      return owners_.at(id) == owner && admitted_.contains(id);
    };
    return !Any(waiting_, owner.first, ran) && !Any(running_, owner.first, ran);
  }
  // Requests that have a place in the queue: no runner has started them, and no other one got it.
  std::vector<RequestId> Placed(auto of) const {
    std::vector<RequestId> placed;
    for (const auto* list : {&waiting_, &running_}) {
      for (const auto& [id, key] : *list) {
        if (!started_.contains(id) && !displaced_.contains(id) && of(id, key)) placed.push_back(id);
      }
    }
    std::ranges::sort(placed);
    return placed;
  }
  // The request whose place one of the party gets: where all are taken the newest of the one with the largest
  // number, if that is above its share and more than the party would have; rather one of an exchange that has
  // not begun. kNoRequest: a free one; nothing: none.
  std::optional<RequestId> PlaceAmong(const std::vector<RequestId>& placed, int32_t places,
                                      const std::string& party) const {
    if (places == 0 || std::ssize(placed) < places) return Plan::kNoRequest;
    std::map<fair::PartyId, std::pair<int, std::pair<bool, RequestId>>>
        held;  // how many, and which gives way
    int& own = held[fair::PartyNamed(party)].first;
    for (const RequestId id : placed) {
      auto& [count, newest] = held[fair::PartyNamed(owners_.at(id).first)];
      ++count;
      newest = std::max(newest, {!begun_.contains(owners_.at(id)), id});
    }
    std::optional<RequestId> gives_way;
    double most = std::max(places / static_cast<double>(held.size()), own + 1.0);
    for (const auto& [one, has] : held) {
      if (has.first <= most) continue;
      most = has.first;
      gives_way = has.second.second;
    }
    return gives_way;
  }
  // The same of all places and of the model's: a place of the model is one of all.
  std::optional<RequestId> PlaceFor(const Places& places, const std::string& key, const std::string& party) {
    DropEnded();
    const auto any = [](RequestId, const auto&) { return true; };
    const auto of_model = [&key](RequestId, const auto& model) { return model == key; };
    const auto by_model = PlaceAmong(Placed(of_model), places.of_model, party);
    const auto by_all = PlaceAmong(Placed(any), places.all, party);
    if (!by_model || !by_all) return std::nullopt;
    return *by_model != Plan::kNoRequest ? by_model : by_all;
  }

  void SetStarted(RequestId id) {
    started_.insert(id);
    if (const PartyMember& owner = owners_.at(id); !owner.second.empty()) begun_.insert(owner);
  }
  // Exchanges that have no requests any more are new when they come again.
  void DropEnded() {
    std::erase_if(begun_, [this](const PartyMember& owner) {
      const auto of_owner = [&](const auto& entry) { return owners_.at(entry.first) == owner; };
      return std::ranges::none_of(waiting_, of_owner) && std::ranges::none_of(running_, of_owner);
    });
  }

  static std::vector<RequestId> DroppedBy(const Plan& plan) {
    std::vector<RequestId> dropped = plan.displaced;
    dropped.insert(dropped.end(), plan.expire.begin(), plan.expire.end());
    return dropped;
  }
  // Those that the next plan drops: they have lost their places, and still wait.
  std::set<RequestId> PopDisplaced() {
    std::erase_if(displaced_, [this](RequestId id) {
      return started_.contains(id) || !(waiting_.contains(id) || running_.contains(id));
    });
    displaced_checked_ += displaced_.size();
    return std::exchange(displaced_, {});
  }

  std::map<RequestId, std::string> waiting_, running_;  // their models
  std::map<RequestId, PartyMember> owners_;
  std::map<RequestId, std::optional<KeepAliveClaim>> said_;
  std::set<RequestId> started_, admitted_;
  std::set<PartyMember> begun_;    // an exchange each, of which a request was started
  std::set<RequestId> displaced_;  // since the last plan
  uint64_t displaced_checked_ = 0;
  std::set<RequestId> sent_;  // since they were admitted
  // By model: when the last client left whose request its runner had, and the last one that had no token.
  std::map<std::string, Time> left_at_, left_unproven_at_;
  std::set<RequestId> quarantined_;  // were in a runner that died, without progress since
  std::set<RequestId> progressed_;   // since they were admitted
  std::set<std::string> dropped_;    // parties whose requests the last plan has dropped
};

}  // namespace quire::scheduler
