// The guarantees of fair_queue.h as properties of random workloads on simulated servers. An unfair queue
// breaks them.
#include "api/base/fair/fair_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "api/base/testing/simulation_seeds.h"

namespace quire::fair {
namespace {

constexpr int64_t kQuantum = 10'000'000;  // ns
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kEnd = 5 * kSecond;

// First come, first served, whoever it is.
struct FifoQueue {
  explicit FifoQueue(int64_t) {}
  using Turn = FairQueue<int>::Turn;
  using Next = FairQueue<int>::Next;
  void Push(const PartyId& party, uint64_t member, int item) { items.push_back({item, {party, member}}); }
  std::optional<Next> Pop() {
    if (items.empty()) return std::nullopt;
    Next next = items.front();
    items.pop_front();
    return next;
  }
  void Charge(const Turn&, int64_t) {}
  std::deque<Next> items;
};

// Shares alike, whatever the weights.
struct UnweightedQueue : FairQueue<int> {
  using FairQueue<int>::FairQueue;
  void Push(const PartyId& party, uint64_t member, int item) {
    FairQueue<int>::Push(same.Intern(party.name()), member, item);
  }
  PartyTable same;
};

// Takes every turn for a short one.
struct UnchargedQueue : FairQueue<int> {
  using FairQueue<int>::FairQueue;
  void Charge(const Turn& turn, int64_t) { FairQueue<int>::Charge(turn, 1000); }
};

template <class Queue>
class Workload {
 public:
  explicit Workload(uint64_t seed) : random_(seed), servers_(size_t{1} << Below(3)) {
    const size_t parties = 2 + Below(7);
    constexpr std::array<int32_t, 6> kWeights = {1, 1, 1, 2, 3, 8};
    for (size_t i = 0; i < parties; ++i) {
      Party& party = parties_.emplace_back();
      party.id = table_.Intern(fmt::format("p{}", i), kWeights[Below(kWeights.size())]);
      party.greedy = i == 0 || Below(3) == 0;
      party.cost_max = Below(2) == 0 ? kQuantum : kQuantum / static_cast<int64_t>(1 + Below(20));
      party.members = 1 + Below(3);
      party.width = party.greedy ? 2 * servers_.size() + Below(40) : 1 + Below(6);
      party.comes_at = Below(2) == 0 ? 0 : static_cast<int64_t>(Below(4 * kSecond));
    }
  }

  // What went wrong, or nothing.
  std::string Run() {
    while (now_ < kEnd && wrong_.empty()) {
      for (size_t i = 0; i < parties_.size(); ++i) Refill(i);
      for (auto& server : servers_) {
        if (!server) Serve(server);
      }
      Advance();
    }
    return wrong_;
  }

 private:
  struct Party {
    PartyId id;
    bool greedy = false;  // it always has work, once it came
    int64_t cost_max = kQuantum;
    size_t members = 1;
    size_t width = 1;  // items at once
    int64_t comes_at = 0;
    size_t waiting = 0, running = 0;
    int64_t idle_since = -2 * kSecond;
    std::optional<int64_t> starts = {};  // since when, after a pause
    int64_t started_at = -2 * kSecond;
    size_t started_before = 0;  // parties that began in the second before, or came and have had no turn yet
    bool comes = false;         // likewise
    double behind = 0;          // its share less what it got
    double least_behind = 0;
  };
  struct Running {
    size_t party = 0;
    typename Queue::Turn turn = {};
    int64_t end = 0, cost = 0;
  };

  size_t Below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }

  void Refill(size_t index) {
    Party& party = parties_[index];
    if (now_ < party.comes_at) return;
    const bool was_idle = party.waiting + party.running == 0;
    if (was_idle && now_ - party.idle_since >= 2 * kSecond) {
      party.started_before = static_cast<size_t>(std::ranges::count_if(parties_, [this](const Party& other) {
        return other.comes || other.started_at >= now_ - kSecond;
      }));
      party.starts = party.started_at = now_;
    }
    party.comes |= was_idle;
    while (party.waiting + (party.greedy ? 0 : party.running) < party.width) {
      queue_.Push(party.id, Below(party.members), static_cast<int>(index));
      ++party.waiting;
    }
  }

  void Serve(std::optional<Running>& server) {
    auto next = queue_.Pop();
    if (!next) return;
    const auto index = static_cast<size_t>(next->item);
    Party& party = parties_[index];
    --party.waiting;
    ++party.running;
    party.comes = false;
    if (party.starts) {
      const auto quanta = static_cast<int64_t>(party.started_before) + 1;
      if (now_ - *party.starts > quanta * kQuantum) {
        wrong_ = fmt::format("{} began after {} quanta, {} began before it", party.id.name(),
                             static_cast<double>(now_ - *party.starts) / kQuantum, party.started_before);
      }
      party.starts.reset();
    }
    const int64_t cost = 1 + static_cast<int64_t>(Below(static_cast<size_t>(party.cost_max)));
    server = Running{index, next->turn, now_ + cost, cost};
  }

  // To the end of the turn that ends first, or to the next party.
  void Advance() {
    int64_t until = kEnd;
    for (const auto& server : servers_) {
      if (server) until = std::min(until, server->end);
    }
    for (const Party& party : parties_) {
      if (party.comes_at > now_) until = std::min(until, party.comes_at);
    }
    Account(until - now_);
    now_ = until;
    for (auto& server : servers_) {
      if (server && server->end == now_) End(server);
    }
  }

  void End(std::optional<Running>& server) {
    queue_.Charge(server->turn, server->cost);
    Party& party = parties_[server->party];
    server.reset();
    if (--party.running > 0 || party.waiting > 0 || party.greedy) return;
    party.idle_since = now_;
    if (Below(4) == 0) party.comes_at = now_ + static_cast<int64_t>(Below(3 * kSecond));
  }

  // Everybody's share of what the servers did, beside what it got.
  void Account(int64_t time) {
    double weights = 0, busy = 0;
    for (const Party& party : parties_) {
      if (party.waiting + party.running > 0) weights += party.id.weight();
    }
    for (const auto& server : servers_) busy += server ? 1 : 0;
    for (Party& party : parties_) {
      if (!party.greedy || party.waiting == 0) continue;
      const double share = busy * party.id.weight() / weights - static_cast<double>(party.running);
      party.behind += share * static_cast<double>(time);
      party.least_behind = std::min(party.least_behind, party.behind);
      const double quanta = (party.behind - party.least_behind) / kQuantum;
      const double most = static_cast<double>(servers_.size()) + 4;
      if (quanta > most)
        wrong_ = fmt::format("{} is {:.2f} quanta behind its share", party.id.name(), quanta);
    }
  }

  std::mt19937_64 random_;
  PartyTable table_;
  Queue queue_{kQuantum};
  std::vector<std::optional<Running>> servers_;
  std::vector<Party> parties_;
  int64_t now_ = 0;
  std::string wrong_;
};

TEST(FairQueueSimulation, SharesAndStartsAreKept) {
  api::test::ForEachSimulationSeed(300, [](uint64_t seed) {
    const std::string wrong = Workload<FairQueue<int>>(seed).Run();
    EXPECT_EQ(wrong, "") << "seed " << seed;
    return wrong.empty();
  });
}

template <class Queue>
int WrongSeeds() {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) wrong += Workload<Queue>(seed).Run().empty() ? 0 : 1;
  return wrong;
}

TEST(FairQueueSimulation, FindsUnfairQueues) {
  EXPECT_GT(WrongSeeds<FifoQueue>(), 10);
  EXPECT_GT(WrongSeeds<UnweightedQueue>(), 10);
  EXPECT_GT(WrongSeeds<UnchargedQueue>(), 10);
}

class FairQueueTest : public ::testing::Test {
 protected:
  // All that wait, each of which costs a quantum.
  std::vector<std::string> PopAll() {
    std::vector<std::string> order;
    while (auto next = queue_.Pop()) {
      order.push_back(next->item);
      queue_.Charge(next->turn, kQuantum);
    }
    return order;
  }
  using Order = std::vector<std::string>;

  PartyTable table_;
  FairQueue<std::string> queue_{kQuantum};
};

TEST_F(FairQueueTest, PartiesHaveTurnsByWeightAndItemsTheirOrder) {
  const PartyId a = table_.Intern("a"), b = table_.Intern("b", 3);
  for (const char* item : {"a1", "a2", "a3"}) queue_.Push(a, 0, item);
  for (const char* item : {"b1", "b2", "b3", "b4", "b5", "b6"}) queue_.Push(b, 0, item);
  EXPECT_EQ(PopAll(), (Order{"a1", "b1", "b2", "b3", "b4", "a2", "b5", "b6", "a3"}));
  EXPECT_EQ(queue_.parties(), 0U) << "nobody is remembered";
}

TEST_F(FairQueueTest, MembersShareWhatTheirPartyHas) {
  const PartyId a = table_.Intern("a"), b = table_.Intern("b");
  for (const char* item : {"a1", "a2", "a3"}) queue_.Push(a, 1, item);
  queue_.Push(a, 2, "A1");
  for (const char* item : {"b1", "b2"}) queue_.Push(b, 1, item);
  EXPECT_EQ(PopAll(), (Order{"a1", "b1", "A1", "b2", "a2", "a3"}));
}

// Members cost a party nothing: new ones all the time take at most half of its turns from the others.
TEST_F(FairQueueTest, MembersThatComeLeaveTheOthersEachOtherTurn) {
  const PartyId a = table_.Intern("a");
  for (int i = 0; i < 20; ++i) queue_.Push(a, 0, "old");
  uint64_t member = 1;
  for (; member <= 3; ++member) queue_.Push(a, member, "new");
  std::vector<std::string> order;
  for (; member < 20; ++member) {
    auto next = queue_.Pop();
    order.push_back(next->item);
    queue_.Charge(next->turn, kQuantum);
    queue_.Push(a, member, "new");
  }
  EXPECT_EQ(std::ranges::count(order, "old"), 8);
  order.resize(6);
  EXPECT_EQ(order, (Order{"old", "new", "old", "new", "old", "new"}));
}

TEST_F(FairQueueTest, AnItemThatIsNotDoneIsTheNextOfItsMemberAgain) {
  const PartyId a = table_.Intern("a"), b = table_.Intern("b");
  for (const char* item : {"a1", "a2"}) queue_.Push(a, 0, item);
  queue_.Push(b, 0, "b1");
  auto next = queue_.Pop();
  queue_.Return(next->turn, next->item, kQuantum);
  EXPECT_EQ(PopAll(), (Order{"b1", "a1", "a2"}));
}

TEST_F(FairQueueTest, AnItemMaySayWhetherItGoes) {
  const PartyId a = table_.Intern("a"), b = table_.Intern("b");
  for (const char* item : {"a1", "a2"}) queue_.Push(a, 0, item);
  queue_.Push(b, 0, "b1");
  const auto next =
      queue_.Pop([](const PartyId&, uint64_t, const std::string& item) { return item == "b1"; });
  EXPECT_EQ(next->item, "b1");
}

TEST_F(FairQueueTest, WhatMayNotGoWaitsAndIsOwedLittle) {
  const PartyId a = table_.Intern("a"), b = table_.Intern("b");
  for (int i = 0; i < 100; ++i) {
    queue_.Push(a, 1, "a");
    queue_.Push(b, 2, "b");
  }
  const auto not_a = [](const PartyId&, uint64_t member) { return member != 1; };
  for (int i = 0; i < 50; ++i) {
    auto next = queue_.Pop(not_a);
    ASSERT_EQ(next->item, "b");
    queue_.Charge(next->turn, kQuantum);
  }
  const Order rest = PopAll();
  EXPECT_LT(std::ranges::find(rest, "b") - rest.begin(), 30);
}

// Virtual time of minutes and a weight of a million: no product of both overflows.
TEST(FairQueue, AHeavyPartyThatComesLateTakesNothingFromTheNext) {
  constexpr int64_t kQuantumNs = 10'000'000, kWeight = 1'000'000;
  PartyTable table;
  const PartyId old = table.Intern("old"), heavy = table.Intern("heavy", kWeight),
                late = table.Intern("late");
  FairQueue<int> queue(kQuantumNs);
  for (int i = 0; i < 40'000; ++i) queue.Push(old, 0, 0);
  for (int i = 0; i < 30'000; ++i) queue.Charge(queue.Pop()->turn, kQuantumNs);  // 300 s
  queue.Push(heavy, 0, 1);
  const auto of_heavy = queue.Pop();
  ASSERT_EQ(of_heavy->item, 1);
  for (int i = 0; i < 1000; ++i) queue.Push(late, 0, 2);
  int turns_of_late = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto next = queue.Pop();
    turns_of_late += next->item == 2 ? 1 : 0;
    queue.Charge(next->turn, kQuantumNs);
  }
  queue.Charge(of_heavy->turn, kQuantumNs);
  EXPECT_NEAR(turns_of_late, 500, 20);
}

TEST_F(FairQueueTest, AnItemThatWaitsCanBeRemoved) {
  const PartyId a = table_.Intern("a"), b = table_.Intern("b");
  for (const char* item : {"a1", "a2", "a3"}) queue_.Push(a, 0, item);
  queue_.Push(b, 0, "b1");
  EXPECT_TRUE(queue_.Remove(a, 0, "a2"));
  EXPECT_FALSE(queue_.Remove(a, 0, "a2"));
  EXPECT_TRUE(queue_.Remove(b, 0, "b1"));
  EXPECT_EQ(queue_.WaitingOf(a, 0), 2U);
  queue_.Push(b, 7, "b2");
  const auto is_b2 = [](const std::string& item) { return item == "b2"; };
  EXPECT_TRUE(queue_.RemoveFirst(is_b2));
  EXPECT_FALSE(queue_.RemoveFirst(is_b2));
  EXPECT_EQ(PopAll(), (Order{"a1", "a3"}));
}

}  // namespace
}  // namespace quire::fair
