#include "server/fleet/node_picker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace quire::server {
namespace {

using namespace std::chrono_literals;

const std::string kModel = "m:latest";

NodeReport Ready(double rate = 1000, bool loaded = true) {
  NodeReport report{.ready = true};
  report.models[kModel] = {.loaded = loaded, .prefill_bytes_per_second = rate, .load_seconds = 4};
  report.stored = {kModel};
  return report;
}

// Turn `turn` of conversation `id`: `bytes` per message, behind `shared` bytes that all conversations have.
PromptChain Turn(uint64_t id, int turn, size_t bytes, size_t shared = 0) {
  PromptChain chain{.model = kModel, .conversation = id * 1000 + 1};
  if (shared > 0) chain.ends.push_back({7, shared});
  for (int i = 1; i <= turn; ++i)
    chain.ends.push_back({id * 1000 + static_cast<uint64_t>(i), shared + bytes * static_cast<size_t>(i)});
  chain.bytes = chain.ends.back().bytes;
  return chain;
}

class NodePickerTest : public ::testing::Test {
 protected:
  NodePickerTest() { SetAll(Ready()); }
  void SetAll(const NodeReport& report) {
    for (size_t i = 0; i < 3; ++i) picker_.SetReport(i, report, now_);
  }
  size_t IndexOf(std::string_view name) const {
    return static_cast<size_t>(std::ranges::find(picker_.names(), name) - picker_.names().begin());
  }

  NodePicker::TimePoint now_ = {};
  NodePicker picker_{{"one", "two", "three"}};
};

// The design's acceptance: 200 conversations of 10 turns, concurrently.
TEST_F(NodePickerTest, TurnsGoWhereTheirPrefixIsAndNodesShareTheLoad) {
  std::mt19937 random(1);
  std::map<uint64_t, std::string_view> held;
  std::map<std::string_view, int> load;
  int kept = 0, later = 0;
  std::vector<int> turns(200, 0);
  std::vector<uint64_t> open(200);
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    SetAll(Ready());
    for (int in_flight = 0; in_flight < 4 && !open.empty(); ++in_flight) {
      const size_t at = random() % open.size();
      const uint64_t id = open[at];
      const int turn = ++turns[id];
      const std::string_view node = picker_.Pick(Turn(id + 1, turn, 300, 2000), now_);
      ++load[node];
      if (turn > 1) {
        ++later;
        kept += held[id] == node ? 1 : 0;
      }
      held[id] = node;
      if (turn == 10) open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  EXPECT_GE(kept, later * 95 / 100);
  int busiest = 0;
  for (const auto& [node, count] : load) busiest = std::max(busiest, count);
  EXPECT_EQ(load.size(), 3U);
  EXPECT_LE(busiest * 3, 2000 * 3 / 2);
}

TEST_F(NodePickerTest, ALongQueueOutweighsACachedPrefix) {
  const size_t first = IndexOf(picker_.Pick(Turn(1, 1, 2000), now_));
  NodeReport busy = Ready();
  busy.pending_prefill_seconds = 1;
  picker_.SetReport(first, busy, now_);
  EXPECT_EQ(IndexOf(picker_.Pick(Turn(1, 2, 2000), now_)), first);  // 2 s of prefill are saved
  busy.pending_prefill_seconds = 30;
  picker_.SetReport(first, busy, now_);
  EXPECT_NE(IndexOf(picker_.Pick(Turn(1, 3, 2000), now_)), first);
}

TEST_F(NodePickerTest, ANodeWithTooManyRequestsIsLeftEvenByItsConversations) {
  const size_t first = IndexOf(picker_.Pick(Turn(1, 1, 2000), now_));
  NodeReport busy = Ready();
  busy.running = 12;
  picker_.SetReport(first, busy, now_);
  EXPECT_NE(IndexOf(picker_.Pick(Turn(1, 2, 2000), now_)), first);
}

TEST_F(NodePickerTest, PrefersALoadedModelAndAFasterNode) {
  SetAll(Ready(1000, false));
  picker_.SetReport(1, Ready(1000, true), now_);
  EXPECT_EQ(picker_.Pick(Turn(1, 1, 100), now_), "two");
  SetAll(Ready(1000));
  picker_.SetReport(2, Ready(4000), now_);
  EXPECT_EQ(picker_.Pick(Turn(2, 1, 5000), now_), "three");
}

TEST_F(NodePickerTest, SkipsNodesThatAreNotReadyOrLackTheModel) {
  NodeReport draining = Ready();
  draining.ready = false;
  picker_.SetReport(0, draining, now_);
  NodeReport without = Ready();
  without.stored = {"other:latest"};
  picker_.SetReport(1, without, now_);
  for (uint64_t id = 1; id < 20; ++id) EXPECT_EQ(picker_.Pick(Turn(id, 1, 100), now_), "three");
  picker_.SetUnreachable(2);
  EXPECT_EQ(picker_.Pick(Turn(30, 1, 100), now_), "");
  SetAll(Ready());
  EXPECT_EQ(picker_.Pick(Turn(30, 1, 100), now_ + NodePicker::kReportLife + 1s), "");
}

TEST_F(NodePickerTest, AnotherPickerChoosesAlike) {
  NodePicker other({"three", "one", "two"});
  for (size_t i = 0; i < 3; ++i) other.SetReport(i, Ready(), now_);
  int equal = 0;
  for (uint64_t id = 1; id <= 300; ++id) {
    SetAll(Ready());
    for (size_t i = 0; i < 3; ++i) other.SetReport(i, Ready(), now_);
    const std::string_view mine = picker_.Pick(Turn(id, 1, 300), now_);
    equal += mine == other.Pick(Turn(id, 3, 300), now_) ? 1 : 0;
  }
  EXPECT_GE(equal, 270);
}

TEST_F(NodePickerTest, ForgetsTheOldestEnds) {
  const std::string_view first = picker_.Pick(Turn(1, 1, 100'000), now_);
  for (uint64_t id = 2; id <= 2 + NodePicker::kEndsMax / 2; ++id) {
    if (id % 64 == 0) SetAll(Ready());
    picker_.Pick(Turn(id, 2, 10), now_);
  }
  SetAll(Ready());
  // Nobody knows it any more: the nodes are alike.
  NodeReport faster = Ready(2000);
  const size_t another = (IndexOf(first) + 1) % 3;
  picker_.SetReport(another, faster, now_);
  EXPECT_EQ(IndexOf(picker_.Pick(Turn(1, 2, 100'000), now_)), another);
}

}  // namespace
}  // namespace quire::server
