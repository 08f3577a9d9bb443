// The scheduler alone, over random events of runners and clients in virtual time. All follows from one seed;
// QUIRE_SIMULATION_SEEDS is how many there are, QUIRE_SIMULATION_FIRST the first.
//
// Checked after every plan: its invariants; memory and model slots as the runners see them; quarantined requests are
// admitted one at a time; requests of one model are admitted in the order in which they came; no model is loaded before
// another one that has waited longer and whose party asks for nothing else; a party of which nothing runs waits for room for
// two drain_pauses at most, or as long as the load took of what has the room; a request whose model is loaded is passed over for a
// drain_pause at most. At every
// arrival: a party is refused only where the rule of the queue's places says so (scheduler/README.md, invariant 8). In the
// end every request is served.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "api/base/testing/simulation_seeds.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler {
namespace {

using api::RequestId;
using std::chrono::hours;
using std::chrono::seconds;
using Time = Scheduler::Time;
using KeepAlive = Scheduler::KeepAlive;
using ExitCause = Scheduler::ExitCause;

const Time kSimulationStart{hours(1)};

RequestId IdOf(uint64_t value) { return RequestId{value}; }

// Random events of runners and clients; checks that every request is served.
class Simulation {
 public:
  static constexpr int64_t kMemory = 80;

  explicit Simulation(uint32_t seed)
      : random_(seed),
        models_max_(1 + Below(3)),
        limited_(Below(2) != 0),
        queue_max_(Below(2) == 0 ? 12 : 32),
        model_queue_max_(Below(4) == 0 ? 4 : 0),
        drains_(Below(3) != 0),
        scheduler_({.models_max = models_max_,
                    .queue_max = queue_max_,
                    .default_keep_alive = seconds(3),
                    .model_queue_max = model_queue_max_,
                    .memory_bytes = limited_ ? kMemory : 0,
                    .drain_limit = seconds(drains_ ? 10 : 0),
                    .queue_timeout = seconds(Below(2) == 0 ? 0 : 40)}) {}

  void Step() {
    now_ += std::chrono::milliseconds(Below(2000));
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
        if (Below(5) == 0) Unload();
    }
  }

  void Plan() {
    const uint64_t suspensions_before = suspensions();
    const Scheduler::Plan plan = scheduler_.NextPlan(now_);
    ASSERT_EQ(scheduler_.CheckInvariants(), "");
    for (const RequestId id : plan.expire) {
      if (running_.contains(id) && quarantined_.contains(id)) probation_until_.erase(running_.at(id));
      ASSERT_EQ(waiting_.erase(id) + running_.erase(id), 1U);
    }
    for (const RequestId id : plan.suspended) {
      ASSERT_TRUE(running_.contains(id)) << "a request is suspended that no runner has";
      const std::string key = running_.at(id);
      ASSERT_TRUE(std::ranges::find(plan.unload, key) != plan.unload.end());
      waiting_[id] = key;
      running_.erase(id);
      probation_until_.erase(key);
    }
    // Also one whose requests this very plan would have admitted.
    if (suspensions() > suspensions_before) suspended_.insert(plan.unload.begin(), plan.unload.end());
    for (const std::string& key : plan.unload) {
      ASSERT_TRUE(loading_.contains(key) || ready_.contains(key)) << "unloaded twice: " << key;
      for (const auto& [id, running] : running_) ASSERT_NE(running, key) << "unloaded while requests ran";
      loading_.erase(key);
      granted_.erase(key);
      ready_.erase(key);
      unloading_.erase(key);
      stopping_.insert(key);
    }
    for (const Scheduler::MemoryGrant& grant : plan.grants) {
      ASSERT_TRUE(loading_.contains(grant.key));
      ASSERT_TRUE(granted_.insert(grant.key).second) << "granted twice";
      loading_since_[grant.key] = now_;
      ASSERT_GE(grant.cache_bytes, EstimateOf(grant.key).cache_min_bytes);
      memory_[grant.key] = EstimateOf(grant.key).fixed_bytes + grant.cache_bytes;
    }
    CheckMemory();
    dropped_.clear();
    for (const Scheduler::TooLarge& one : plan.too_large) {
      ASSERT_EQ(waiting_.erase(one.id), 1U);
      dropped_.insert(parties_.at(one.id));
    }
    std::vector<Scheduler::Load> loaded_now;
    for (const Scheduler::Load& load : plan.load) {
      ASSERT_FALSE(loading_.contains(load.key) || ready_.contains(load.key) || stopping_.contains(load.key));
      ASSERT_TRUE(waiting_.contains(load.first) || pinned_.contains(load.key));
      loading_.insert(load.key);
      loaded_now.push_back(load);
    }
    ASSERT_LE(std::ssize(loading_) + std::ssize(ready_) + std::ssize(stopping_), models_max_);
    for (const RequestId id : plan.admit) {
      ASSERT_TRUE(waiting_.contains(id) && ready_.contains(waiting_.at(id)));
      const std::string key = waiting_.at(id);
      ASSERT_EQ(OldestWaiting(key), id) << "a younger request was admitted before an older one";
      if (const auto said = keep_alive_.find(id);
          said != keep_alive_.end() && said->second < KeepAlive::zero()) {
        pinned_.insert(key);
      } else if (said != keep_alive_.end()) {
        pinned_.erase(key);
      }
      if (quarantined_.contains(id)) {
        ASSERT_TRUE(!probation_until_.contains(key) || probation_until_.at(key) <= now_)
            << "two requests on probation at once";
        probation_until_[key] = now_ + Scheduler::Options().probation_time;
      }
      running_[id] = key;
      admitted_.insert(id);
      waiting_.erase(id);
    }
    for (const RequestId id : plan.reject) {
      ASSERT_EQ(waiting_.erase(id), 1U);
      dropped_.insert(parties_.at(id));
    }
    CheckOrderOfLoads(loaded_now);
    CheckWaits();
    CheckTurns();
  }

  uint64_t turns_checked() const { return turns_checked_; }

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
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  std::string Key() { return std::string(1, static_cast<char>('a' + Below(5))); }
  template <class Set>
  auto Any(Set& set) {
    return std::next(set.begin(), Below(static_cast<int>(set.size())));
  }

  uint64_t suspensions() const {
    const auto found = scheduler_.unloads().find(Scheduler::UnloadReason::kSuspended);
    return found == scheduler_.unloads().end() ? 0 : found->second;
  }
  RequestId OldestWaiting(const std::string& key) const {
    for (const auto& [id, model] : waiting_) {
      if (model == key) return id;
    }
    return Scheduler::kNoRequest;
  }
  // Granted until the runner is reaped.
  void CheckMemory() {
    if (!limited_) return;
    int64_t bytes = 0;
    for (const auto& [key, granted] : memory_) bytes += granted;
    ASSERT_LE(bytes, kMemory) << "more memory granted than there is";
  }
  template <class List>
  bool Any(const List& list, const std::string& party, auto of) const {
    return std::ranges::any_of(list, [&](const auto& entry) {
      return parties_.at(entry.first) == party && of(entry.first, entry.second);
    });
  }
  // The party has requests for another model, or had some until this plan.
  bool AsksForMore(const std::string& party, const std::string& key) const {
    const auto other = [&key](RequestId, const std::string& model) { return model != key; };
    return dropped_.contains(party) || Any(waiting_, party, other) || Any(running_, party, other);
  }
  // No request of the party has ever run, of those that there are.
  bool HasNeverRun(const std::string& party) const {
    const auto ran = [this](RequestId id, const auto&) { return admitted_.contains(id); };
    return !Any(waiting_, party, ran) && !Any(running_, party, ran);
  }
  // A party of which nothing runs waits for room for two drain_pauses at most, or as long as what has the room took to load.
  void CheckTurns() {
    const bool full = drains_ && loading_.empty() && stopping_.empty() && std::ssize(ready_) == models_max_ &&
                      std::ranges::none_of(ready_, [this](const auto& key) { return pinned_.contains(key); });
    if (!full) return full_since_.clear();
    Time paid_off{};
    for (const std::string& key : ready_) paid_off = std::max(paid_off, paid_off_at_.at(key));
    std::erase_if(full_since_, [this](const auto& entry) { return !waiting_.contains(entry.first); });
    for (const auto& [id, key] : waiting_) {
      const auto died = died_at_.find(key);
      const bool backs_off = died != died_at_.end() && now_ - died->second <= seconds(33);
      if (ready_.contains(key) || backs_off || !HasNeverRun(parties_.at(id))) {
        full_since_.erase(id);
        continue;
      }
      const Time since = full_since_.try_emplace(id, now_).first->second;
      ++turns_checked_;
      ASSERT_LT(now_, std::max(since + 2 * Scheduler::Options().drain_pause, paid_off))
          << "a request waits for room, and its party has none";
    }
  }
  // A model that was not loaded though it has waited longer: its runner has died lately, or it was suspended, or its party
  // has other requests.
  void CheckOrderOfLoads(const std::vector<Scheduler::Load>& loads) {
    for (const Scheduler::Load& load : loads) {
      for (const auto& [id, key] : waiting_) {
        if (id >= load.first || key == load.key || suspended_.contains(key)) continue;
        if (loading_.contains(key) || ready_.contains(key) || stopping_.contains(key)) continue;
        if (AsksForMore(parties_.at(id), key)) continue;
        const auto died = died_at_.find(key);
        ASSERT_TRUE(died != died_at_.end() && now_ - died->second <= seconds(33))
            << load.key << " was loaded before " << key << ", which has waited longer";
      }
    }
  }

  // Requests whose model is loaded, and admits them. One after the other those are admitted that were in a runner that died.
  void CheckWaits() {
    std::set<std::string> busy = unloading_;
    for (const auto* list : {&waiting_, &running_}) {
      for (const auto& [id, key] : *list) {
        if (quarantined_.contains(id)) busy.insert(key);
      }
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
      ASSERT_LT(now_ - since, Scheduler::Options().drain_pause) << "a request waits for a loaded model";
    }
  }
  // Requests that no runner has started.
  template <class Of>
  int32_t CountQueued(Of of) const {
    int32_t count = 0;
    for (const auto* list : {&waiting_, &running_}) {
      for (const auto& [id, key] : *list) count += !started_.contains(id) && of(id, key) ? 1 : 0;
    }
    return count;
  }
  // An eighth more than the places may wait, of parties that have less than a quarter of these waiting.
  bool MayQueue(const std::string& key, const std::string& party) const {
    const int32_t own = CountQueued([&](RequestId id, const auto&) { return parties_.at(id) == party; });
    const auto has_room = [&](int32_t queued, int32_t places) {
      const int32_t behind = std::max(places / 8, 1);
      return queued < places || (!party.empty() && queued < places + behind && own < std::max(behind / 4, 1));
    };
    return has_room(CountQueued([](RequestId, const auto&) { return true; }), queue_max_) &&
           (model_queue_max_ == 0 ||
            has_room(CountQueued([&](RequestId, const auto& model) { return model == key; }),
                     model_queue_max_));
  }
  void Unload() {
    const std::string key = Key();
    scheduler_.Unload(key);
    if (ready_.contains(key) || loading_.contains(key)) unloading_.insert(key);
  }
  void Enqueue() {
    const RequestId id = IdOf(++ids_);
    const std::string key = Key();
    std::optional<KeepAlive> keep_alive;
    if (Below(4) == 0) keep_alive = seconds(Below(4) - 1);
    const std::string party = Below(2) == 0 ? "" : std::string(1, static_cast<char>('a' + Below(4)));
    const bool expected = MayQueue(key, party);
    const bool queued = scheduler_.Enqueue(id, key, keep_alive, now_, party).has_value();
    ASSERT_EQ(queued, expected) << "party \"" << party << "\" at " << scheduler_.waiting()
                                << " waiting requests";
    if (queued) waiting_[id] = key;
    parties_[id] = party;
    if (keep_alive) keep_alive_[id] = *keep_alive;
  }
  void FinishOne() {
    if (running_.empty()) return;
    const auto one = Any(running_);
    scheduler_.Start(one->first);
    started_.insert(one->first);
    if (Below(2) == 0) Clear(one->first);
    if (Below(3) == 0) return;  // it goes on for a while
    Clear(one->first);
    scheduler_.Remove(one->first, now_);
    running_.erase(one);
  }
  void Clear(RequestId id) {
    scheduler_.Progress(id, now_);
    if (quarantined_.erase(id) != 0) probation_until_.erase(running_.at(id));
  }
  static Scheduler::MemoryEstimate EstimateOf(const std::string& key) {
    const int64_t size = 15 * (key[0] - 'a' + 1);  // the largest never fits with its caches
    return {.fixed_bytes = size, .cache_bytes = 40, .cache_min_bytes = 10};
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
    if (&from == &running_ && quarantined_.contains(one->first)) probation_until_.erase(one->second);
    scheduler_.Remove(one->first, now_);
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
    for (const RequestId id : scheduler_.RunnerStopping(key, cause, now_)) {
      ASSERT_EQ(waiting_.erase(id) + running_.erase(id), 1U) << "a request failed that was not there";
      quarantined_.erase(id);
    }
    std::erase_if(running_, [&](const auto& entry) {
      if (entry.second != key) return false;
      waiting_.insert(entry);
      quarantined_.insert(entry.first);
      return true;
    });
    probation_until_.erase(key);
    unloading_.erase(key);
    stopping_.insert(key);
  }
  void Reap() {
    if (stopping_.empty()) return;
    const std::string key = *Any(stopping_);
    stopping_.erase(key);
    memory_.erase(key);
    scheduler_.RunnerReaped(key);
  }

  std::mt19937 random_;
  const int models_max_;
  const bool limited_;
  const int32_t queue_max_, model_queue_max_;
  const bool drains_;
  Scheduler scheduler_;
  Time now_ = kSimulationStart;
  uint64_t ids_ = 0;
  std::map<RequestId, std::string> waiting_, running_;
  std::set<std::string> loading_, granted_, ready_, stopping_;
  std::map<RequestId, KeepAlive> keep_alive_;  // what requests said
  std::map<RequestId, std::string> parties_;
  std::set<RequestId> started_, admitted_;
  std::set<std::string> dropped_;  // parties whose requests the last plan has dropped
  std::map<std::string, Time> loading_since_, paid_off_at_;
  uint64_t turns_checked_ = 0;
  std::map<RequestId, Time> full_since_;  // all room, by models that run, while this request waits for some
  std::map<RequestId, Time> waits_since_;
  std::set<std::string> unloading_;  // by name, until they are
  std::set<std::string> pinned_;
  std::set<RequestId> quarantined_;
  std::map<std::string, int64_t> memory_;  // granted, by model
  std::map<std::string, Time> died_at_;
  std::set<std::string> suspended_;  // models, until they are loaded again
  std::map<std::string, Time>
      probation_until_;  // by model: when the next quarantined request may be admitted
};

TEST(SchedulerSimulation, NoRequestIsLostStarvedOrFinishedTwice) {
  uint64_t checked = 0;
  api::test::ForEachSimulationSeed(1000, [&checked](uint64_t seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(static_cast<uint32_t>(seed));
    for (int step = 0; step < 300 && !testing::Test::HasFatalFailure(); ++step) {
      simulation.Step();
      if (step % 3 != 0) simulation.Plan();
    }
    simulation.Settle();
    checked += simulation.turns_checked();
    return !testing::Test::HasFailure();
  });
  EXPECT_GT(checked, 0U);
}

}  // namespace
}  // namespace quire::scheduler
