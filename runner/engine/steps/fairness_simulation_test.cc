// Who computes and who has a place, over random requests of parties of all weights, in steps without a clock:
// the engine's rules (party_accounts.h, step_plan.h, admission.h, place_share.h) without its
// models and caches. All follows from one seed; QUIRE_SIMULATION_SEEDS is how many there are,
// QUIRE_SIMULATION_FIRST the first.
//
// Checked in every step, for each party that has work:
//  - one that runs nothing has a place at once, while another has two or one whose reader takes nothing;
//    nobody loses the only place but to the rule for stalled readers or where nobody has two, and none is
//    given more than one may have;
//  - the same holds among the members of one party, the exchanges of an address;
//  - where nobody has two, places change hands no more often than once in an interval (PlaceRotation), and
//    as often as that while members wait that have not run, so that a newer request with less work waits for
//    one interval;
//  - one whose prompt is in the batch is passed over for at most the tokens by which it was ahead of the
//    others, by their weights, and one step of each; those that come meanwhile are not behind all that go on,
//    and what it decodes itself counts;
//  - one that begins is passed over for others that begin only.
// In the end every request is served.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "api/base/fair/party.h"
#include "api/base/testing/simulation_seeds.h"
#include "runner/engine/shares/party_accounts.h"
#include "runner/engine/shares/place_share.h"
#include "runner/engine/shares/step_plan.h"
#include "runner/engine/steps/admission.h"

namespace quire::runner::engine {
namespace {

constexpr std::array<double, 7> kWeights = {1, 1, 2, 4, 1, 3, 10};
constexpr int64_t kTokenCost = 1024;
constexpr double kRounding = 0.01;
constexpr size_t kWaitingMax = 32;
constexpr auto kStepTime = std::chrono::milliseconds(40);
constexpr size_t kStalls = 1;     // the party whose readers often stall
constexpr size_t kAddresses = 4;  // of the parties; the others are keys, which have no members

struct SimulatedRequest {
  size_t party = 0;
  uint64_t member = 0;
  uint64_t arrival = 0;
  int32_t prefill_left = 0;
  int32_t output_left = 0;
  int64_t skipped_tokens = 0;
  bool stalled = false;
  uint64_t waits_since = 0;
  uint64_t given = 0;
  bool produced = false;
};

uint64_t Number(size_t party) { return party + 1; }
std::string PartyName(size_t party) { return std::string(1, static_cast<char>('a' + party)); }

class FairnessSimulation {
 public:
  explicit FairnessSimulation(uint32_t seed)
      : random_(seed), running_max_(2 + Below(19)), prefill_tokens_(8 + Below(60)), greedy_(Party()) {}

  void Step(bool arrivals) {
    now_ += kStepTime;
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
  using Times = std::array<double, kWeights.size()>;                      // by party
  enum class Claim : uint8_t { kIdleParty, kIdleMember, kStalledPlace };  // as in Engine
  // For a party whose prompt is in the batch and got nothing: what others may get before it does, and what
  // they got.
  struct Turn {
    double allowed = 0;
    double skipped = 0;
  };

  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  size_t Party() { return static_cast<size_t>(Below(static_cast<int>(kWeights.size()))); }
  double VirtualTime(size_t party) const { return shares_.TimeOf(ids_[party]) / kTokenCost; }
  bool HasRequests(size_t party) const {
    const auto of = [&](const SimulatedRequest& request) { return request.party == party; };
    return std::ranges::any_of(running_, of) || std::ranges::any_of(waiting_, of);
  }
  int32_t PlacesOf(size_t party) const {
    return static_cast<int32_t>(std::ranges::count(running_, party, &SimulatedRequest::party));
  }
  int32_t MemberPlaces(const SimulatedRequest& owner) const {
    return static_cast<int32_t>(std::ranges::count_if(running_, [&](const SimulatedRequest& request) {
      return request.party == owner.party && request.member == owner.member;
    }));
  }
  static bool IsFollowing(const SimulatedRequest& request) { return request.stalled; }

  // ---- events ----

  void Change() {
    if (Below(3) == 0) Arrive(Party(), Below(6));
    if (Below(8) == 0) {
      const int exchange = Below(3);  // all choices of one, or requests of their own
      for (int i = Below(30); i > 0; --i) Arrive(greedy_, exchange == 0 ? i : 100 + exchange);
    }
    if (Below(40) == 0) greedy_ = Party();
    if (Below(6) == 0) RemoveOne();
    if (!running_.empty() && Below(10) == 0) Any(running_).stalled ^= true;
    for (SimulatedRequest& request : running_) request.stalled |= request.party == kStalls && Below(4) == 0;
    if (!waiting_.empty() && Below(10) == 0) Any(waiting_).stalled = false;
  }
  SimulatedRequest& Any(Requests& list) {
    return list[static_cast<size_t>(Below(static_cast<int>(list.size())))];
  }
  void Arrive(size_t party, int exchange) {
    if (waiting_.size() >= kWaitingMax) return;
    waiting_.push_back({.party = party,
                        .member = party < kAddresses ? 1 + static_cast<uint64_t>(exchange) : 0,
                        .arrival = ++arrivals_,
                        .prefill_left = 1 + Below(Below(8) == 0 ? 500 : 60),
                        .output_left = 1 + Below(Below(8) == 0 ? 60 : 12),
                        .waits_since = ++waits_});
  }
  void RemoveOne() {
    Requests& list = Below(2) == 0 ? waiting_ : running_;
    if (list.empty()) return;
    const auto one = list.begin() + Below(static_cast<int>(list.size()));
    list.erase(one);
  }

  // ---- admission, as Engine::Admit without memory and prefixes ----

  void Admit() {
    while (!waiting_.empty()) {
      std::optional<size_t> leaving;
      auto next = ChooseNext(&leaving);
      const bool rotates = !next;
      if (rotates) next = Rotate(&leaving);
      if (!next) return;
      SimulatedRequest admitted = waiting_[*next];
      admitted.given = ++given_;
      admitted.produced = false;
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(*next));
      if (leaving)
        Preempt(*leaving, admitted, rotates);
      else
        ASSERT_LT(MemberPlaces(admitted), PlacesOfOne(running_max_));
      running_.push_back(admitted);
      ASSERT_LE(std::ssize(running_), running_max_);
    }
  }
  std::optional<size_t> ChooseNext(std::optional<size_t>* leaving) {
    std::vector<WaitingState> states = WaitingStates();
    if (std::ssize(running_) < running_max_) {
      for (size_t i = 0; i < states.size(); ++i) {
        states[i].crowded = MemberPlaces(waiting_[i]) >= PlacesOfOne(running_max_);
      }
      if (const auto next = NextToAdmit(states, SIZE_MAX, !running_.empty())) return next;
    }
    const std::vector<Place> places = Places();
    const PlaceCounts counts(places);
    for (const auto claim : {Claim::kIdleParty, Claim::kIdleMember, Claim::kStalledPlace}) {
      if (claim == Claim::kStalledPlace && std::ranges::none_of(places, &Place::stalled)) return std::nullopt;
      states = WaitingStates();
      for (size_t i = 0; i < states.size(); ++i) {
        const size_t party = waiting_[i].party;
        if (claim == Claim::kIdleParty) states[i].follows |= PlacesOf(party) > 0;
        if (claim == Claim::kIdleMember)
          states[i].follows |= states[i].has_place || counts.LargestMemberOf(Number(party)) < 2;
      }
      const auto next = NextToAdmit(states, SIZE_MAX, !running_.empty());
      if (!next) continue;
      *leaving = PlaceToGive(places, {Number(waiting_[*next].party), waiting_[*next].member});
      if (*leaving) return next;
    }
    return std::nullopt;
  }
  std::optional<size_t> Rotate(std::optional<size_t>* leaving) {
    std::vector<RotationCandidate> candidates;
    std::vector<size_t> indexes;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const SimulatedRequest& request = waiting_[i];
      if (IsFollowing(request) || MemberPlaces(request) > 0) continue;
      candidates.push_back({.owner = {Number(request.party), request.member},
                            .arrival = request.arrival,
                            .waits_since = request.waits_since,
                            .has_run = request.given > 0,
                            .work = request.prefill_left + request.output_left});
      indexes.push_back(i);
    }
    const std::vector<Place> places = Places();
    const auto handover = rotation_.Choose(places, candidates, SIZE_MAX, now_);
    if (!handover) return std::nullopt;
    CheckHandover(*handover, candidates);
    rotation_.Record(handover->scope, places, now_);
    *leaving = handover->leaving.front();
    return indexes[handover->next];
  }
  void CheckHandover(const PlaceRotation::Handover& handover,
                     const std::vector<RotationCandidate>& candidates) {
    ASSERT_EQ(handover.leaving.size(), 1U) << "memory is not scarce";
    PlaceRotation::Time& not_before = next_handover_at_[handover.scope];
    ASSERT_GE(now_, not_before) << "places change hands all the time";
    const auto places = handover.scope.all ? std::ssize(running_) : PlacesOf(handover.scope.party - 1);
    not_before = now_ + PlaceRotation::kTimeSlice / std::max<int64_t>(places, PlaceRotation::kPlacesMin);
    const RotationCandidate& next = candidates[handover.next];
    for (const SimulatedRequest& request : running_) {
      if (!handover.scope.all && Number(request.party) != handover.scope.party) continue;
      if (next.has_run && !request.produced) continue;
      ASSERT_LE(running_[handover.leaving.front()].given, request.given) << "the place was not the oldest";
    }
  }
  std::vector<WaitingState> WaitingStates() const {
    std::vector<WaitingState> states;
    for (const SimulatedRequest& request : waiting_) {
      states.push_back({.virtual_time = VirtualTime(request.party),
                        .arrival = request.arrival,
                        .follows = IsFollowing(request),
                        .has_place = MemberPlaces(request) > 0});
    }
    return states;
  }
  std::vector<Place> Places() const {
    std::vector<Place> places;
    for (const SimulatedRequest& request : running_) {
      places.push_back({.party = Number(request.party),
                        .arrival = request.arrival,
                        .stalled = request.stalled,
                        .member = request.member,
                        .given = request.given,
                        .produced = request.produced});
    }
    return places;
  }
  void Preempt(size_t index, const SimulatedRequest& admitted, bool rotates) {
    SimulatedRequest leaves = running_[index];
    leaves.waits_since = ++waits_;
    const bool within = leaves.party == admitted.party;
    ASSERT_TRUE(leaves.stalled || rotates || (within ? MemberPlaces(leaves) : PlacesOf(leaves.party)) > 1)
        << "the only place was lost";
    ASSERT_TRUE(leaves.stalled || (within ? MemberPlaces(admitted) : PlacesOf(admitted.party)) == 0)
        << "a place was taken beside another";
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
    waiting_.push_back(leaves);
    waiting_.back().prefill_left += 1;  // what it computed is a snapshot
  }
  void CheckPlaces() {
    const bool to_anybody =
        std::ssize(running_) < running_max_ ||
        std::ranges::any_of(running_, [](const auto& request) { return request.stalled; });
    for (const SimulatedRequest& request : waiting_) {
      if (IsFollowing(request) || MemberPlaces(request) > 0) continue;
      const bool idle_party = PlacesOf(request.party) == 0;
      const bool can_give = std::ranges::any_of(running_, [&](const SimulatedRequest& other) {
        return idle_party ? PlacesOf(other.party) > 1
                          : other.party == request.party && MemberPlaces(other) > 1;
      });
      ASSERT_FALSE(can_give || to_anybody) << PartyName(request.party) << " has no place";
    }
  }

  // ---- one step ----

  void UpdateShares() {
    const auto went_on = std::exchange(goes_on_, {});
    for (const SimulatedRequest& request : running_)
      goes_on_[request.party] |= !request.stalled && request.prefill_left > 0;
    for (const SimulatedRequest& request : waiting_) goes_on_[request.party] |= !request.stalled;
    std::vector<fair::PartyId> active;
    for (size_t party = 0; party < kWeights.size(); ++party) {
      if (goes_on_[party]) active.push_back(ids_[party]);
    }
    const auto before = VirtualTimes();
    shares_.SetActive(active);
    const double greatest = std::ranges::max(before);
    double least = std::numeric_limits<double>::infinity();
    for (size_t party = 0; party < kWeights.size(); ++party) {
      if (went_on[party] && goes_on_[party]) least = std::min(least, before[party]);
      // What it owes is forgotten once the others have had as much, or nobody is left.
      if (active.empty() || (!goes_on_[party] && VirtualTime(party) > last_[party])) last_[party] = 0;
    }
    for (size_t party = 0; party < kWeights.size(); ++party) {
      if (went_on[party] || !goes_on_[party]) continue;
      const double time = VirtualTime(party);
      ASSERT_TRUE(std::isinf(least) || time >= least - kRounding) << "idling earned credit";
      ASSERT_TRUE(shares_.Begins(ids_[party]) || time >= last_[party] - kRounding) << "leaving paid off";
      ASSERT_LE(time, greatest + kRounding) << "it starts behind all others";
      for (auto& [other, turn] : turns_) {
        if (other == party) continue;
        turn.allowed += kWeights[party] * std::max(VirtualTime(other) - time, 0.0) + prefill_tokens_;
      }
    }
  }
  Times VirtualTimes() const {
    Times times{};
    for (size_t party = 0; party < times.size(); ++party) times[party] = VirtualTime(party);
    return times;
  }

  void Compute() {
    UpdateShares();
    std::vector<SequenceState> states;
    std::vector<PartyState> parties;
    for (size_t party = 0; party < kWeights.size(); ++party)
      parties.push_back({VirtualTime(party), kWeights[party]});
    for (const SimulatedRequest& request : running_) {
      states.push_back({.prefill_left = request.prefill_left,
                        .backpressured = request.stalled,
                        .skipped_tokens = request.skipped_tokens,
                        .party = request.party});
    }
    const std::vector<StepItem> items = PlanStep(states, parties, prefill_tokens_);
    const auto before = VirtualTimes();
    std::array<bool, kWeights.size()> begins{};
    for (size_t party = 0; party < begins.size(); ++party) begins[party] = shares_.Begins(ids_[party]);
    Times prompts{}, answers{};
    const auto has_prompt = PartiesWithPrompts();
    std::vector<bool> planned(running_.size());
    int32_t prefill = 0;
    for (const StepItem& item : items) {
      SimulatedRequest& request = running_[item.sequence];
      planned[item.sequence] = true;
      const double time = VirtualTime(request.party);
      shares_.Charge(ids_[request.party], item.tokens * kTokenCost);
      last_[request.party] = VirtualTime(request.party);
      const double took = last_[request.party] - time;
      ASSERT_GE(took, item.tokens / kWeights[request.party] - kRounding);
      if (request.prefill_left > 0) {
        prompts[request.party] += item.tokens;
      } else {
        answers[request.party] += took;
      }
      if (request.prefill_left > 0) {
        prefill += item.tokens;
        request.prefill_left -= item.tokens;
      } else {
        --request.output_left;
        request.produced = true;
      }
    }
    ASSERT_LE(prefill, prefill_tokens_);
    CheckTurns(has_prompt, before, prompts, answers);
    for (size_t party = 0; party < begins.size(); ++party) {
      if (!begins[party] || !has_prompt[party] || prompts[party] > 0) continue;
      for (size_t other = 0; other < begins.size(); ++other)
        ASSERT_TRUE(begins[other] || prompts[other] == 0)
            << PartyName(other) << " goes before one that begins";
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      if (!planned[i] && running_[i].prefill_left > 0) running_[i].skipped_tokens += prefill;
    }
    for (size_t i = running_.size(); i-- > 0;) {
      if (running_[i].output_left > 0) continue;
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  std::array<bool, kWeights.size()> PartiesWithPrompts() const {
    std::array<bool, kWeights.size()> has_prompt{};
    for (const SimulatedRequest& request : running_)
      has_prompt[request.party] |= request.prefill_left > 0 && !request.stalled;
    return has_prompt;
  }
  // `times`: of the parties before the step; `prompts`: tokens of prompts in it; `answers`: virtual time that
  // its answers took.
  void CheckTurns(const std::array<bool, kWeights.size()>& has_prompt, const Times& times,
                  const Times& prompts, const Times& answers) {
    for (size_t party = 0; party < kWeights.size(); ++party) {
      if (!has_prompt[party] || prompts[party] > 0) {
        turns_.erase(party);
        continue;
      }
      const auto [turn, is_new] = turns_.try_emplace(party);
      if (is_new) turn->second.allowed = LeadOf(party, times);
      for (size_t other = 0; other < kWeights.size(); ++other) {
        turn->second.skipped += prompts[other];
        turn->second.allowed += kWeights[other] * answers[party];
      }
      ASSERT_LE(turn->second.skipped, turn->second.allowed + kRounding)
          << PartyName(party) << " is passed over for longer than it was ahead";
    }
  }
  // Tokens that others may compute before it is the party's turn.
  double LeadOf(size_t party, const Times& times) const {
    double tokens = 0;
    for (size_t other = 0; other < kWeights.size(); ++other) {
      if (other == party || !HasRequests(other)) continue;
      tokens += kWeights[other] * std::max(times[party] - times[other], 0.0) + prefill_tokens_;
    }
    return tokens;
  }

  std::mt19937 random_;
  const int running_max_;
  const int prefill_tokens_;
  size_t greedy_;  // the party that sends many at once
  fair::PartyTable table_;
  const std::array<fair::PartyId, kWeights.size()> ids_ = [this] {
    std::array<fair::PartyId, kWeights.size()> ids;
    for (size_t party = 0; party < ids.size(); ++party)
      ids[party] = table_.Intern(PartyName(party), static_cast<int32_t>(kWeights[party]));
    return ids;
  }();
  PartyAccounts shares_{prefill_tokens_ * kTokenCost};
  Requests running_, waiting_;
  uint64_t arrivals_ = 0, waits_ = 0, given_ = 0;
  PlaceRotation rotation_;
  PlaceRotation::Time now_{};
  std::map<PlaceRotation::Scope, PlaceRotation::Time> next_handover_at_;
  std::map<size_t, Turn> turns_;
  std::array<bool, kWeights.size()> goes_on_ = {};
  Times last_ = {};  // the parties' virtual times when they were charged last
};

TEST(FairnessSimulation, NoPartyIsPassedOverForLongerThanItWasAhead) {
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
