// Who computes and who has a place, over random requests of tenants of all weights, in steps without a clock: the engine's rules
// (fair_share.h, step_plan.h, admission.h, place_share.h) without its models and caches. All follows from one seed;
// QUIRE_SIMULATION_SEEDS is how many there are, QUIRE_SIMULATION_FIRST the first.
//
// Checked in every step, for each tenant that has work:
//  - one that runs nothing has a place at once, while another has two or one whose reader takes nothing; nobody loses the
//    only place but to the rule for stalled readers, and none is given more than one party may have;
//  - one whose prompt is in the batch is passed over for at most the tokens by which it was ahead of the others, by
//    their weights, and one step of each; those that come meanwhile start at the least of all, and what it decodes itself counts.
// In the end every request is served.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "api/base/testing/simulation_seeds.h"
#include "runner/engine/admission.h"
#include "runner/engine/fair_share.h"
#include "runner/engine/place_share.h"
#include "runner/engine/step_plan.h"

namespace quire::runner::engine {
namespace {

constexpr std::array<double, 7> kWeights = {1, 1, 2, 4, 1, 0.5, 10};
constexpr double kRounding = 1e-6;
constexpr size_t kWaitingMax = 32;

struct SimulatedRequest {
  size_t tenant = 0;
  uint64_t arrival = 0;
  int32_t prefill_left = 0;
  int32_t output_left = 0;
  int64_t skipped_tokens = 0;
  bool stalled = false;
};

std::string TenantName(size_t tenant) { return std::string(1, static_cast<char>('a' + tenant)); }

class FairnessSimulation {
 public:
  explicit FairnessSimulation(uint32_t seed)
      : random_(seed), running_max_(2 + Below(19)), prefill_tokens_(8 + Below(60)), greedy_(Tenant()) {}

  void Step(bool arrivals) {
    if (arrivals) Change();
    Admit();
    CheckPlaces();
    Compute();
  }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  void WakeReaders() {
    for (SimulatedRequest& request : running_) request.stalled = false;
    for (SimulatedRequest& request : waiting_) request.stalled = false;
  }

 private:
  using Requests = std::vector<SimulatedRequest>;
  // Of a tenant whose prompt is in the batch and got nothing: what others may get before it does, and what they got.
  struct Turn {
    double allowed = 0;
    double skipped = 0;
  };

  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  size_t Tenant() { return static_cast<size_t>(Below(static_cast<int>(kWeights.size()))); }
  double VirtualTime(size_t tenant) const { return shares_.Of(TenantName(tenant)).virtual_time; }
  bool HasRequests(size_t tenant) const {
    const auto of = [&](const SimulatedRequest& request) { return request.tenant == tenant; };
    return std::ranges::any_of(running_, of) || std::ranges::any_of(waiting_, of);
  }
  int32_t PlacesOf(size_t tenant) const {
    return static_cast<int32_t>(std::ranges::count(running_, tenant, &SimulatedRequest::tenant));
  }
  static bool IsFollowing(const SimulatedRequest& request) { return request.stalled; }

  // ---- events ----

  void Change() {
    if (Below(3) == 0) Arrive(Tenant());
    if (Below(8) == 0) {
      for (int i = Below(30); i > 0; --i) Arrive(greedy_);
    }
    if (Below(40) == 0) greedy_ = Tenant();
    if (Below(6) == 0) RemoveOne();
    if (!running_.empty() && Below(10) == 0) Any(running_).stalled ^= true;
    if (!waiting_.empty() && Below(10) == 0) Any(waiting_).stalled = false;
  }
  SimulatedRequest& Any(Requests& list) {
    return list[static_cast<size_t>(Below(static_cast<int>(list.size())))];
  }
  void Arrive(size_t tenant) {
    if (waiting_.size() >= kWaitingMax) return;
    const double least = LeastVirtualTime();
    const bool was_idle = !HasRequests(tenant);
    const double before = VirtualTime(tenant);
    shares_.Enter(TenantName(tenant), kWeights[tenant]);
    if (was_idle) {
      ASSERT_GE(VirtualTime(tenant), least) << "idling earned credit";
      ASSERT_GE(VirtualTime(tenant), left_at_[tenant]) << "leaving paid off";
      ASSERT_LE(VirtualTime(tenant), std::max(before, least) + kRounding) << "it starts behind all others";
      for (auto& [other, turn] : turns_) {
        if (other == tenant) continue;
        turn.allowed += kWeights[tenant] * std::max(VirtualTime(other) - least, 0.0) + prefill_tokens_;
      }
    }
    waiting_.push_back({.tenant = tenant,
                        .arrival = ++arrivals_,
                        .prefill_left = 1 + Below(Below(8) == 0 ? 500 : 60),
                        .output_left = 1 + Below(Below(8) == 0 ? 60 : 12)});
  }
  // Of all that have requests.
  double LeastVirtualTime() const {
    double least = std::numeric_limits<double>::infinity();
    for (size_t tenant = 0; tenant < kWeights.size(); ++tenant) {
      if (HasRequests(tenant)) least = std::min(least, VirtualTime(tenant));
    }
    return least == std::numeric_limits<double>::infinity() ? 0 : least;
  }
  void RemoveOne() {
    Requests& list = Below(2) == 0 ? waiting_ : running_;
    if (list.empty()) return;
    const auto one = list.begin() + Below(static_cast<int>(list.size()));
    const size_t tenant = one->tenant;
    list.erase(one);
    ExitOne(tenant);
  }

  // One request of the tenant has left the lists.
  void ExitOne(size_t tenant) {
    left_at_[tenant] = VirtualTime(tenant);
    shares_.Exit(TenantName(tenant));
    if (idle()) left_at_.fill(0);  // nobody is ahead of anybody
  }

  // ---- admission, as Engine::Admit without memory and prefixes ----

  void Admit() {
    while (!waiting_.empty()) {
      std::optional<size_t> leaving;
      const auto next = ChooseNext(&leaving);
      if (!next) return;
      const SimulatedRequest admitted = waiting_[*next];
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(*next));
      if (leaving)
        StepBack(*leaving, admitted.tenant);
      else
        ASSERT_LT(PlacesOf(admitted.tenant), PlacesOfOneParty(running_max_));
      running_.push_back(admitted);
      ASSERT_LE(std::ssize(running_), running_max_);
    }
  }
  std::optional<size_t> ChooseNext(std::optional<size_t>* leaving) {
    std::vector<WaitingState> states = WaitingStates();
    if (std::ssize(running_) < running_max_) {
      for (size_t i = 0; i < states.size(); ++i) {
        states[i].crowded = PlacesOf(waiting_[i].tenant) >= PlacesOfOneParty(running_max_);
      }
      if (const auto next = NextToAdmit(states, SIZE_MAX, !running_.empty())) return next;
    }
    const std::vector<Place> places = Places();
    for (const bool idle_parties_only : {true, false}) {
      if (!idle_parties_only && std::ranges::none_of(places, &Place::stalled)) return std::nullopt;
      states = WaitingStates();
      for (WaitingState& state : states) state.follows |= idle_parties_only && state.has_place;
      const auto next = NextToAdmit(states, SIZE_MAX, !running_.empty());
      if (!next) continue;
      *leaving = PlaceToGive(places, names_[waiting_[*next].tenant]);
      if (*leaving) return next;
    }
    return std::nullopt;
  }
  std::vector<WaitingState> WaitingStates() const {
    std::vector<WaitingState> states;
    for (const SimulatedRequest& request : waiting_) {
      states.push_back({.virtual_time = VirtualTime(request.tenant),
                        .arrival = request.arrival,
                        .follows = IsFollowing(request),
                        .has_place = PlacesOf(request.tenant) > 0});
    }
    return states;
  }
  std::vector<Place> Places() const {
    std::vector<Place> places;
    for (const SimulatedRequest& request : running_) {
      places.push_back(
          {.party = names_[request.tenant], .arrival = request.arrival, .stalled = request.stalled});
    }
    return places;
  }
  void StepBack(size_t index, size_t admitted) {
    const SimulatedRequest leaves = running_[index];
    ASSERT_TRUE(leaves.stalled || PlacesOf(leaves.tenant) > 1) << "a tenant lost its only place";
    ASSERT_TRUE(leaves.stalled || PlacesOf(admitted) == 0) << "a tenant took a place beside its own";
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
    waiting_.push_back(leaves);
    waiting_.back().prefill_left += 1;  // what it computed is a snapshot
  }
  void CheckPlaces() {
    bool can_give = std::ssize(running_) < running_max_;
    for (const SimulatedRequest& request : running_)
      can_give |= request.stalled || PlacesOf(request.tenant) > 1;
    for (const SimulatedRequest& request : waiting_) {
      const bool waits = !IsFollowing(request) && PlacesOf(request.tenant) == 0;
      ASSERT_FALSE(waits && can_give) << TenantName(request.tenant) << " has no place";
    }
  }

  // ---- one step ----

  void Compute() {
    std::vector<SequenceState> states;
    std::vector<TenantState> tenants;
    for (size_t tenant = 0; tenant < kWeights.size(); ++tenant)
      tenants.push_back(shares_.Of(TenantName(tenant)));
    for (const SimulatedRequest& request : running_) {
      states.push_back({.prefill_left = request.prefill_left,
                        .backpressured = request.stalled,
                        .skipped_tokens = request.skipped_tokens,
                        .tenant = request.tenant});
    }
    const std::vector<StepItem> items = PlanStep(states, tenants, prefill_tokens_);
    CheckTurns(items);
    std::vector<bool> planned(running_.size());
    int32_t prefill = 0;
    for (const StepItem& item : items) {
      SimulatedRequest& request = running_[item.sequence];
      planned[item.sequence] = true;
      const double before = VirtualTime(request.tenant);
      shares_.Charge(TenantName(request.tenant), item.tokens);
      ASSERT_NEAR(VirtualTime(request.tenant), before + item.tokens / kWeights[request.tenant], kRounding);
      if (request.prefill_left > 0) {
        prefill += item.tokens;
        request.prefill_left -= item.tokens;
      } else {
        --request.output_left;
      }
    }
    ASSERT_LE(prefill, prefill_tokens_);
    for (size_t i = 0; i < running_.size(); ++i) {
      if (!planned[i] && running_[i].prefill_left > 0) running_[i].skipped_tokens += prefill;
    }
    for (size_t i = running_.size(); i-- > 0;) {
      if (running_[i].output_left > 0) continue;
      const size_t tenant = running_[i].tenant;
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
      ExitOne(tenant);
    }
  }
  void CheckTurns(const std::vector<StepItem>& items) {
    std::array<double, kWeights.size()> prompts{}, answers{};
    for (const StepItem& item : items) {
      const SimulatedRequest& request = running_[item.sequence];
      (request.prefill_left > 0 ? prompts : answers)[request.tenant] += item.tokens;
    }
    for (size_t tenant = 0; tenant < kWeights.size(); ++tenant) {
      const bool has_prompt = std::ranges::any_of(running_, [&](const SimulatedRequest& request) {
        return request.tenant == tenant && request.prefill_left > 0 && !request.stalled;
      });
      if (!has_prompt || prompts[tenant] > 0) {
        turns_.erase(tenant);
        continue;
      }
      const auto [turn, is_new] = turns_.try_emplace(tenant);
      if (is_new) turn->second.allowed = LeadOf(tenant);
      for (size_t other = 0; other < kWeights.size(); ++other) {
        turn->second.skipped += prompts[other];
        turn->second.allowed += kWeights[other] * answers[tenant] / kWeights[tenant];
      }
      ASSERT_LE(turn->second.skipped, turn->second.allowed + kRounding)
          << TenantName(tenant) << " is passed over for longer than it was ahead";
    }
  }
  // Tokens that others may compute before it is the tenant's turn.
  double LeadOf(size_t tenant) const {
    double tokens = 0;
    for (size_t other = 0; other < kWeights.size(); ++other) {
      if (other == tenant || !HasRequests(other)) continue;
      tokens += kWeights[other] * std::max(VirtualTime(tenant) - VirtualTime(other), 0.0) + prefill_tokens_;
    }
    return tokens;
  }

  std::mt19937 random_;
  const int running_max_;
  const int prefill_tokens_;
  size_t greedy_;  // the tenant that sends many at once
  const std::array<std::string, kWeights.size()> names_ = [] {
    std::array<std::string, kWeights.size()> names;
    for (size_t tenant = 0; tenant < names.size(); ++tenant) names[tenant] = TenantName(tenant);
    return names;
  }();
  FairShare shares_;
  Requests running_, waiting_;
  uint64_t arrivals_ = 0;
  std::map<size_t, Turn> turns_;
  std::array<double, kWeights.size()> left_at_ = {};  // virtual time when its last request so far ended
};

TEST(FairnessSimulation, NoTenantIsPassedOverForLongerThanItWasAhead) {
  api::test::ForEachSimulationSeed(1000, [](uint64_t seed) {
    SCOPED_TRACE(seed);
    FairnessSimulation simulation(static_cast<uint32_t>(seed));
    for (int step = 0; step < 100 && !HasFatalFailure(); ++step) simulation.Step(/*arrivals=*/true);
    simulation.WakeReaders();
    for (int step = 0; step < 100'000 && !simulation.idle() && !HasFatalFailure(); ++step)
      simulation.Step(false);
    EXPECT_TRUE(simulation.idle() || HasFatalFailure()) << "a request waits forever";
    return !HasFailure();
  });
}

}  // namespace
}  // namespace quire::runner::engine
