// The scheduler alone over random events in virtual time, by seed (api/base/testing/simulation_seeds.h).
// Checked after every plan: its invariants; memory and model slots as the runners see them; requests of one
// model are admitted in the order in which they came, and while some of them are quarantined in the turns of
// testing/quarantine_model.h; none fails for a death that one that came later may have caused; no model is
// loaded before another one that has waited longer and whose party asks for nothing else; a party, or a
// member of one, of which nothing runs waits for room for two drain_pauses at most, or for what has the room
// to load; a request whose model is loaded is passed over for a drain_pause at most, also while another party
// unloads the model; no model is unloaded for its age, or by name, that another party keeps
// (testing/claims_model.h); only pins of its own party or an admin's refuse one its room; none is refused its
// share of the queue's places, which the newest of those above theirs give back; all others are served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "api/base/testing/simulation_seeds.h"
#include "scheduler/scheduler.h"
#include "scheduler/testing/claims_model.h"
#include "scheduler/testing/quarantine_model.h"
#include "scheduler/testing/simulated_requests.h"

namespace quire::scheduler {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

const Time kSimulationStart{hours(1)};

class Simulation : private SimulatedRequests {
 public:
  static constexpr int64_t kMemory = 80;
  static constexpr seconds kKeepAlive{3};

  explicit Simulation(uint32_t seed)
      : random_(seed),
        models_max_(1 + Below(3)),
        limited_(Below(2) != 0),
        places_{.all = Below(2) == 0 ? 12 : 32, .of_model = Below(4) == 0 ? 4 : 0},
        drains_(Below(3) != 0),
        scheduler_({.models_max = models_max_,
                    .queue_max = places_.all,
                    .default_keep_alive = kKeepAlive,
                    .model_queue_max = places_.of_model,
                    .memory_bytes = limited_ ? kMemory : 0,
                    .drain_limit = seconds(drains_ ? 10 : 0),
                    .queue_timeout = seconds(Below(2) == 0 ? 0 : 40)}) {}

  void Step() {
    now_ += std::chrono::milliseconds(Below(2000));
    Act();
    DropClaims();
  }

  void Plan() {
    const uint64_t suspensions_before = Suspensions();
    const uint64_t room_made_before = RoomMade();
    const auto plan = scheduler_.NextPlan(now_);
    ASSERT_EQ(scheduler_.CheckInvariants(), "");
    ASSERT_EQ(std::set(plan.displaced.begin(), plan.displaced.end()), PopDisplaced());
    for (const RequestId id : DroppedBy(plan)) {
      if (running_.contains(id)) RecordDeparture(id, now_), EndRunOf(id);
      ASSERT_EQ(waiting_.erase(id) + running_.erase(id), 1U);
    }
    for (const RequestId id : plan.suspended) {
      ASSERT_TRUE(running_.contains(id)) << "a request is suspended that no runner has";
      const std::string key = running_.at(id);
      ASSERT_TRUE(std::ranges::find(plan.unload, key) != plan.unload.end());
      waiting_[id] = key;
      running_.erase(id);
      claims_.End(key, owners_.at(id).first, now_);
    }
    // Also one whose requests this very plan would have admitted.
    if (Suspensions() > suspensions_before) {
      suspended_.insert(plan.unload.begin(), plan.unload.end());
      for (const std::string& key : plan.unload) claims_.Suspend(key), quarantine_.Reset(key);
    }
    if (RoomMade() == room_made_before) CheckUnloads(plan.unload);
    for (const std::string& key : plan.unload) {
      ASSERT_TRUE(loading_.contains(key) || ready_.contains(key)) << "unloaded twice: " << key;
      for (const auto& [id, running] : running_) ASSERT_NE(running, key) << "unloaded while requests ran";
      loading_.erase(key);
      granted_.erase(key);
      ready_.erase(key);
      quarantine_.EndRunner(key, /*unexplained=*/false);
      EraseDepartures(key);
      if (unloading_.erase(key) != 0) forgotten_.insert(key);
      unloaded_by_.erase(key);
      stopping_.insert(key);
      unloaded_.insert(key);
    }
    for (const Plan::MemoryGrant& grant : plan.grants) {
      ASSERT_TRUE(loading_.contains(grant.key));
      ASSERT_TRUE(granted_.insert(grant.key).second) << "granted twice";
      loading_since_[grant.key] = now_;
      ASSERT_GE(grant.cache_bytes, EstimateOf(grant.key).cache_min_bytes);
      memory_[grant.key] = EstimateOf(grant.key).fixed_bytes + grant.cache_bytes;
    }
    CheckMemory();
    dropped_.clear();
    for (const Plan::TooLarge& one : plan.too_large) {
      ASSERT_EQ(waiting_.erase(one.id), 1U);
      dropped_.insert(owners_.at(one.id).first);
    }
    std::vector<Plan::Load> loaded_now;
    for (const Plan::Load& load : plan.load) {
      ASSERT_FALSE(loading_.contains(load.key) || ready_.contains(load.key) || stopping_.contains(load.key));
      ASSERT_TRUE(waiting_.contains(load.first) || scheduler_.WillRestart(load.key));
      loading_.insert(load.key);
      loaded_now.push_back(load);
    }
    ASSERT_LE(std::ssize(loading_) + std::ssize(ready_) + std::ssize(stopping_), models_max_);
    const auto claims_before = plan.reject.empty() ? std::nullopt : std::optional(claims_);
    for (const RequestId id : plan.admit) {
      ASSERT_TRUE(waiting_.contains(id) && ready_.contains(waiting_.at(id)));
      const std::string key = waiting_.at(id);
      ASSERT_EQ(quarantine_.Admit(key, id, WaitingFor(key), now_, RunsInQuarantine(key)), "");
      claims_.Start(key, owners_.at(id).first, said_.at(id));
      progressed_.erase(id);
      sent_.erase(id);
      running_[id] = key;
      admitted_.insert(id);
      waiting_.erase(id);
      if (Below(4) != 0) Send(id);
    }
    if (claims_before) CheckRejects(plan.reject, *claims_before);
    for (const RequestId id : plan.reject) {
      ASSERT_EQ(waiting_.erase(id), 1U);
      dropped_.insert(owners_.at(id).first);
    }
    DropClaims();
    CheckOrderOfLoads(loaded_now);
    CheckWaits();
    CheckTurns();
  }

  // Checks of turns, unloads, rejections, requests that failed, waits for quarantined ones, lost places.
  std::array<uint64_t, 6> checked() const {
    return {turns_checked_,  unloads_checked_,      rejects_checked_,
            blames_checked_, quarantine_.checked(), displaced_checked_};
  }

  // No more arrivals, crashes or cancels: with every runner doing its part all waiting requests are admitted.
  void Settle() {
    for (int round = 0; round < 500 && !(waiting_.empty() && running_.empty()); ++round) {
      now_ += seconds(1);
      Plan();
      Estimate();
      FinishLoad(true);
      FinishOne();
      Reap();
    }
    EXPECT_EQ(waiting_.size(), 0U) << "a request waits forever";
    EXPECT_EQ(running_.size(), 0U);
    EXPECT_EQ(scheduler_.requests(), 0);
    EXPECT_EQ(scheduler_.waiting(), 0);
  }

 private:
  void Act() {
    switch (Below(8)) {
      case 0:
      case 1:
      case 2:
        return Enqueue();
      case 3:
        return FinishOne();
      case 4:
        return CancelOne();
      case 5:
        return Below(3) == 0 ? Estimate() : FinishLoad(Below(5) != 0);
      case 6:
        return Below(6) == 0 ? Crash() : Reap();
      default:
        if (Below(5) == 0) return Unload();
        if (Below(5) == 0) EndClaim();
    }
  }
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  std::string Key() { return std::string(1, static_cast<char>('a' + Below(5))); }
  template <class Set>
  auto Any(Set& set) {
    return std::next(set.begin(), Below(static_cast<int>(set.size())));
  }

  using Reason = UnloadReason;
  uint64_t CountUnloads(std::initializer_list<Reason> reasons) const {
    const auto& counts = scheduler_.unloads();
    return std::transform_reduce(
        reasons.begin(), reasons.end(), uint64_t{0}, std::plus(),
        [&](Reason reason) { return counts.contains(reason) ? counts.at(reason) : 0; });
  }
  uint64_t Suspensions() const { return CountUnloads({Reason::kSuspended}); }
  // Models unloaded for the sake of others.
  uint64_t RoomMade() const {
    return CountUnloads({Reason::kModelLimit, Reason::kMemory, Reason::kTooLarge, Reason::kSuspended});
  }
  // Models that leave because they are not used, or because of one party: no other one keeps them.
  void CheckUnloads(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      if (!ready_.contains(key) || unloading_.contains(key)) continue;
      const auto by = unloaded_by_.find(key);
      ++unloads_checked_;
      ASSERT_FALSE(claims_.IsKept(key, by == unloaded_by_.end() ? "nobody" : by->second, now_))
          << key << " is unloaded though a party keeps it";
    }
  }
  // Those admitted by the same plan may have pinned a model before, or unpinned it since.
  void CheckRejects(const std::vector<RequestId>& rejected, const ClaimsModel& before) {
    for (const RequestId id : rejected) {
      const auto parties = PartiesWaitingFor(waiting_.at(id));
      for (const std::string& key : ready_) {
        ++rejects_checked_;
        ASSERT_TRUE(claims_.IsPinnedAgainst(key, parties) || before.IsPinnedAgainst(key, parties))
            << "a request is rejected that " << key << " may leave for";
      }
    }
  }
  // The scheduler forgets models that have no runner, nor a request, nor will restart.
  void DropClaims() {
    for (char name = 'a'; name < 'f'; ++name) {
      const std::string key(1, name);
      const bool has_runner = loading_.contains(key) || ready_.contains(key) || stopping_.contains(key);
      if (!has_runner && OldestWaiting(key) == Plan::kNoRequest && !scheduler_.WillRestart(key))
        claims_.Clear(key);
    }
  }
  // Granted until the runner is reaped.
  void CheckMemory() {
    if (!limited_) return;
    int64_t bytes = 0;
    for (const auto& [key, granted] : memory_) bytes += granted;
    ASSERT_LE(bytes, kMemory) << "more memory granted than there is";
  }
  // One of which nothing runs waits for room for two drain_pauses at most, or as long as what has the room
  // took to load.
  void CheckTurns() {
    const bool full = drains_ && loading_.empty() && stopping_.empty() && std::ssize(ready_) == models_max_;
    if (!full) return full_since_.clear();
    Time paid_off{};
    for (const std::string& key : ready_) paid_off = std::max(paid_off, paid_off_at_.at(key));
    std::erase_if(full_since_, [this](const auto& entry) { return !waiting_.contains(entry.first); });
    for (const auto& [id, key] : waiting_) {
      const auto died = died_at_.find(key);
      const bool backs_off = died != died_at_.end() && now_ - died->second <= seconds(33);
      const auto parties = PartiesWaitingFor(key);
      const bool pinned = std::ranges::any_of(
          ready_, [&](const std::string& ready) { return claims_.IsPinnedAgainst(ready, parties); });
      if (ready_.contains(key) || backs_off || pinned || !HasNeverRun(owners_.at(id))) {
        full_since_.erase(id);
        continue;
      }
      const Time since = full_since_.try_emplace(id, now_).first->second;
      ++turns_checked_;
      ASSERT_LT(now_, std::max(since + 2 * SchedulerOptions().drain_pause, paid_off))
          << "a request waits for room, and its party has none";
    }
  }
  // A model that was not loaded though it has waited longer: its runner has died lately, or it was suspended,
  // or its party has other requests.
  void CheckOrderOfLoads(const std::vector<Plan::Load>& loads) {
    for (const Plan::Load& load : loads) {
      for (const auto& [id, key] : waiting_) {
        if (id >= load.first || key == load.key || suspended_.contains(key)) continue;
        if (loading_.contains(key) || ready_.contains(key) || stopping_.contains(key)) continue;
        if (AsksForMore(owners_.at(id).first, key)) continue;
        const auto died = died_at_.find(key);
        ASSERT_TRUE(died != died_at_.end() && now_ - died->second <= seconds(33))
            << load.key << " was loaded before " << key << ", which has waited longer";
      }
    }
  }

  // Requests whose model is loaded, and admits them, unless it is another one's turn.
  void CheckWaits() {
    std::set<std::string> busy = unloading_;
    for (const auto& [key, party] : unloaded_by_) busy.insert(key);
    for (const std::string& key : ready_) {
      if (quarantine_.IsTurn(key, now_)) busy.insert(key);
    }
    std::erase_if(waits_since_, [&](const auto& entry) {
      return !waiting_.contains(entry.first) || !ready_.contains(waiting_.at(entry.first));
    });
    if (!drains_) return;  // then a model that makes room admits nothing until it is idle
    for (const auto& [id, key] : waiting_) {
      if (!ready_.contains(key)) continue;
      const Time since = waits_since_.try_emplace(id, now_).first->second;
      if (busy.contains(key)) {
        waits_since_.erase(id);
        continue;
      }
      ASSERT_LT(now_ - since, SchedulerOptions().drain_pause) << "a request waits for a loaded model";
    }
  }
  void Unload() {
    const std::string key = Key();
    scheduler_.Unload(key);
    if (ready_.contains(key) || loading_.contains(key)) {
      unloading_.insert(key);
      unloaded_by_.erase(key);
    } else {
      claims_.Clear(key);
    }
  }
  void EndClaim() {
    const std::string key = Key();
    const std::string party = Party();
    scheduler_.EndClaim(key, fair::PartyNamed(party), now_);
    claims_.Release(key, party);
    auto waiting = PartiesWaitingFor(key);
    waiting.erase(party);
    const bool has_runner = ready_.contains(key) || loading_.contains(key);
    // What a party said that the model of the claims does not know keeps it, too: then it only may be
    // unloaded.
    if (has_runner && waiting.empty() && !claims_.IsKept(key, party, now_) && !unloading_.contains(key))
      unloaded_by_.try_emplace(key, party);
  }
  std::string Party() { return Below(2) == 0 ? "e" : std::string(1, static_cast<char>('a' + Below(4))); }
  void Enqueue() {
    const RequestId id = RequestId{++ids_};
    const std::string key = Key();
    const std::string party = Party();
    std::optional<KeepAliveClaim> said;
    if (Below(4) == 0) said = KeepAliveClaim(seconds(Below(4) - 1), /*by_admin=*/party == "d");
    // a and b are addresses, behind which several people may be.
    const std::string member = party == "a" || party == "b" ? party + std::to_string(Below(3)) : "";
    const auto place = PlaceFor(places_, key, party);
    ASSERT_EQ(scheduler_.IsFullFor(key, fair::PartyNamed(party)), !place);
    const api::Client client{.party = fair::PartyNamed(party), .exchange = member};
    ASSERT_NE(scheduler_.Enqueue(id, key, said, now_, client).has_value(), !place);
    if (!place) return;
    if (*place != Plan::kNoRequest) displaced_.insert(*place);
    owners_[id] = {party, member};
    said_[id] = said;
    waiting_[id] = key;
    const auto by = unloaded_by_.find(key);
    if (by != unloaded_by_.end() && by->second != party) unloaded_by_.erase(by);
  }
  void FinishOne() {
    if (running_.empty()) return;
    const auto one = Any(running_);
    Send(one->first);
    scheduler_.Start(one->first);
    SetStarted(one->first);
    if (Below(2) == 0) Clear(one->first);
    if (Below(3) == 0) return;  // it goes on for a while
    Clear(one->first);
    scheduler_.Remove(one->first, now_);
    EndRunOf(one->first);
    running_.erase(one);
  }
  void Send(RequestId id) {
    if (!sent_.insert(id).second) return;
    scheduler_.Sent(id, now_);
    quarantine_.Send(running_.at(id), id, now_);
  }
  void EndRunOf(RequestId id) {
    claims_.End(running_.at(id), owners_.at(id).first, now_);
    quarantine_.Prove(running_.at(id), id);
  }
  void Clear(RequestId id) {
    scheduler_.Progress(id, now_);
    dies_.erase(running_.at(id));
    quarantined_.erase(id);
    progressed_.insert(id);
    quarantine_.Prove(running_.at(id), id);
  }
  void Estimate() {
    if (loading_.empty()) return;
    const std::string key = *Any(loading_);
    if (!granted_.contains(key)) scheduler_.OnMemoryEstimate(key, EstimateOf(key));
  }
  void CancelOne() {
    auto& from = Below(2) == 0 ? waiting_ : running_;
    if (from.empty()) return;
    const auto one = Any(from);
    scheduler_.Abandon(one->first, now_);
    if (&from == &running_) RecordDeparture(one->first, now_), EndRunOf(one->first);
    from.erase(one);
  }
  void FinishLoad(bool well) {
    if (loading_.empty()) return;
    const std::string key = *Any(loading_);
    if (well && !granted_.contains(key)) return;
    loading_.erase(key);
    granted_.erase(key);
    if (well) {
      scheduler_.LoadDone(key, now_);
      paid_off_at_[key] = now_ + (now_ - loading_since_.at(key));
      ready_.insert(key);
      suspended_.erase(key);
    } else {
      Lose(key);
    }
  }
  void Crash() {
    if (ready_.empty()) return;
    const std::string key = *Any(ready_);
    ready_.erase(key);
    Lose(key);
  }
  void Lose(const std::string& key) {
    died_at_[key] = now_;
    const ExitCause cause =
        std::array{ExitCause::kRefused, ExitCause::kKilled, ExitCause::kCrashed}[Below(3)];
    if (cause != ExitCause::kRefused) dies_.insert(key);
    for (const auto& [id, running] : running_) {
      if (running == key) claims_.End(key, owners_.at(id).first, now_);
    }
    const auto lost = scheduler_.RunnerStopping(key, cause, now_);
    if (cause != ExitCause::kRefused) CheckBlame(key, lost);
    quarantine_.EndRunner(key, cause != ExitCause::kRefused && HasQuarantinedBut(lost, key));
    EraseDepartures(key);
    for (const RequestId id : lost) {
      ASSERT_EQ(waiting_.erase(id) + running_.erase(id), 1U) << "a request failed that was not there";
      quarantined_.erase(id);
    }
    std::erase_if(running_, [&](const auto& entry) {
      if (entry.second != key) return false;
      waiting_.insert(entry);
      if (sent_.contains(entry.first)) quarantined_.insert(entry.first);
      return true;
    });
    if (unloading_.erase(key) != 0) forgotten_.insert(key);
    unloaded_by_.erase(key);
    stopping_.insert(key);
  }
  void CheckBlame(const std::string& key, const std::vector<RequestId>& lost) {
    for (const RequestId id : lost) {
      if (!running_.contains(id)) continue;
      ++blames_checked_;
      ASSERT_TRUE(MayFail(id, key, now_)) << "it fails for another's death";
    }
  }
  void Reap() {
    if (stopping_.empty()) return;
    const std::string key = *Any(stopping_);
    stopping_.erase(key);
    memory_.erase(key);
    if (unloaded_.erase(key) != 0) {
      ASSERT_TRUE(scheduler_.RunnerStopping(key, ExitCause::kRefused, now_).empty());
    }
    scheduler_.RunnerReaped(key);
    if (forgotten_.erase(key) != 0) claims_.Clear(key);
    if (!dies_.contains(key) && !suspended_.contains(key) && !scheduler_.WillRestart(key)) claims_.Clear(key);
  }

  std::mt19937 random_;
  const int models_max_;
  const bool limited_;
  const Places places_;
  const bool drains_;
  Scheduler scheduler_;
  Time now_ = kSimulationStart;
  uint64_t ids_ = 0;
  std::set<std::string> loading_, granted_, ready_, stopping_;
  ClaimsModel claims_{kKeepAlive};
  std::set<std::string> unloaded_;   // models whose runners stop because the scheduler said so
  std::set<std::string> forgotten_;  // models that stop and were unloaded by name: no claim is left
  std::set<std::string> dies_;       // models whose runners died, and have computed nothing since
  std::map<std::string, Time> loading_since_, paid_off_at_;
  uint64_t turns_checked_ = 0, unloads_checked_ = 0, rejects_checked_ = 0, blames_checked_ = 0;
  std::map<RequestId, Time> full_since_;  // all room, by models that run, while this request waits for some
  std::map<RequestId, Time> waits_since_;
  std::set<std::string> unloading_;                 // by name, until they are
  std::map<std::string, std::string> unloaded_by_;  // by a party, the only one that uses them
  std::map<std::string, int64_t> memory_;           // granted, by model
  std::map<std::string, Time> died_at_;
  std::set<std::string> suspended_;  // models, until they are loaded again
  QuarantineModel quarantine_;
};

TEST(SchedulerSimulation, NoRequestIsLostStarvedOrFinishedTwice) {
  std::array<uint64_t, 6> checked{};
  api::test::ForEachSimulationSeed(1000, [&checked](uint64_t seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(static_cast<uint32_t>(seed));
    for (int step = 0; step < 300 && !testing::Test::HasFatalFailure(); ++step) {
      simulation.Step();
      if (step % 3 != 0) simulation.Plan();
    }
    simulation.Settle();
    for (size_t kind = 0; kind < checked.size(); ++kind) checked[kind] += simulation.checked()[kind];
    return !testing::Test::HasFailure();
  });
  EXPECT_THAT(checked, testing::Each(testing::Gt(0U)));
}

}  // namespace
}  // namespace quire::scheduler
