#include "runner/engine/encoders/encoder_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace quire::runner::engine {
namespace {

using std::chrono::milliseconds;

using TextIds = std::vector<api::RequestId>;

constexpr int64_t kLongestText = 8192;
constexpr int64_t kMixedRows = 200;

// Turns of 100 ms, of which a text of 8,192 rows needs 100 and others as many fewer as they are shorter.
class TurnsHarness {
 public:
  api::RequestId Add(const std::string& address, const std::string& exchange, int64_t rows,
                     int32_t weight = 1) {
    const api::RequestId id{++last_};
    turns.Add({.party = fair::PartyNamed(address, weight), .exchange = exchange},
              {.id = id, .tokens = std::vector<api::TokenId>(static_cast<size_t>(rows)), .types = {}});
    return id;
  }
  // The texts whose turn it is.
  std::vector<api::RequestId> Run(milliseconds took = milliseconds(100)) {
    EncoderTurns::Task* const task = turns.Choose(kMixedRows);
    if (task == nullptr) return {};
    std::vector<api::RequestId> ids;
    for (const auto* const text : task->texts) {
      ids.push_back(text->job.id);
      time[text->job.id] += took;
    }
    rows_[ids] = task->rows;
    int64_t sum = 0;
    for (const auto& [texts, rows] : rows_) sum += rows;
    largest_sum = std::max(largest_sum, sum);
    const bool done = ++turns_of_[ids] == std::max<int64_t>(1, 100 * task->rows / kLongestText);
    turns.EndTurn(*task, took, done);
    if (!done) return ids;
    rows_.erase(ids);
    ended.insert(ended.end(), ids.begin(), ids.end());
    return ids;
  }
  void RunUntil(api::RequestId id) {
    for (int i = 0; i < 10'000 && !HasEnded(id); ++i) Run();
    EXPECT_TRUE(HasEnded(id));
  }
  bool HasEnded(api::RequestId id) const { return std::ranges::find(ended, id) != ended.end(); }

  EncoderTurns turns = EncoderTurns(kLongestText);
  std::vector<api::RequestId> ended;
  std::map<api::RequestId, milliseconds> time;
  int64_t largest_sum = 0;  // rows of tasks in progress

 private:
  uint64_t last_ = 0;
  std::map<TextIds, int64_t> turns_of_, rows_;  // by the texts of a task
};

TEST(EncoderTurns, AShortTextOfAnotherClientHasTheNextTurn) {
  for (const std::string address : {"other", "same"}) {
    TurnsHarness turns;
    const auto text = turns.Add("same", "1", kLongestText);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(turns.Run(), TextIds{text});
      const auto other = turns.Add(address, "2." + std::to_string(i), 20);
      EXPECT_EQ(turns.Run(), TextIds{other}) << address;
      EXPECT_TRUE(turns.HasEnded(other));
    }
    turns.RunUntil(text);
  }
}

TEST(EncoderTurns, ALongTextKeepsHalfOfTheTimeBesideManyShortOnes) {
  for (const bool same : {true, false}) {
    TurnsHarness turns;
    const auto text = turns.Add("a", "long", kLongestText);
    int count = 0;
    for (; count < 1000 && !turns.HasEnded(text); ++count) {
      turns.Add(same ? "a" : "b", std::to_string(count), 50);
      turns.Run();
    }
    EXPECT_NEAR(count, 200, 5) << same;
  }
}

TEST(EncoderTurns, TimeIsSharedByWeight) {
  TurnsHarness turns;
  const auto one = turns.Add("a", "1", kLongestText, 1), other = turns.Add("b", "2", kLongestText, 2);
  for (int i = 0; i < 81; ++i) turns.Run();
  EXPECT_NEAR(static_cast<double>(turns.time[one].count()), 2700, 100);
  EXPECT_NEAR(static_cast<double>(turns.time[other].count()), 5400, 100);
}

TEST(EncoderTurns, ATurnIsChargedByTheRowsOfTheTextsInIt) {
  TurnsHarness turns;
  turns.Add("a", "1", 20);
  turns.Add("b", "2", 60);
  turns.Add("c", "3", kLongestText);
  EXPECT_EQ(turns.Run(milliseconds(400)).size(), 2U);  // 100 ms and 300 ms
  const auto less = turns.Add("a", "4", kLongestText / 4), more = turns.Add("b", "5", kLongestText / 4);
  for (int i = 0; i < 30; ++i) turns.Run();
  EXPECT_NEAR(static_cast<double>((turns.time[less] - turns.time[more]).count()), 200, 100);
}

TEST(EncoderTurns, TextsOfOneExchangeFillATaskAndThoseOfSeveralLess) {
  TurnsHarness turns;
  for (int i = 0; i < 20; ++i) turns.Add("a", "1", 50);
  EXPECT_EQ(turns.Run().size(), 10U);  // 500 rows
  turns.RunUntil(api::RequestId{20});
  for (int i = 0; i < 20; ++i) turns.Add(i % 2 == 0 ? "a" : "b", std::to_string(i % 4), 50);
  EXPECT_EQ(turns.Run(),
            (TextIds{api::RequestId{21}, api::RequestId{22}, api::RequestId{23}, api::RequestId{24}}));
  const auto long_one = turns.Add("c", "1", 600);
  EXPECT_EQ(turns.Run(), TextIds{long_one});
}

TEST(EncoderTurns, TextsOfOneExchangeKeepTheirOrder) {
  TurnsHarness turns;
  std::vector<api::RequestId> ids;
  for (const int64_t rows : {700, 20, 3000, 20, 20}) ids.push_back(turns.Add("a", "1", rows));
  turns.Add("b", "2", kLongestText);
  turns.RunUntil(ids.back());
  EXPECT_EQ(turns.ended, ids);
}

TEST(EncoderTurns, TasksAreBoundedAndEveryOtherClientFindsAPlace) {
  TurnsHarness turns;
  for (int i = 0; i < 50; ++i) turns.Add("attacker", std::to_string(i), kLongestText);
  for (int i = 0; i < 20; ++i) turns.Run();
  EXPECT_EQ(turns.turns.running(), 1U);
  const auto medium = turns.Add("attacker", "medium", 600);
  const auto longest = turns.Add("other", "1", kLongestText);
  for (int i = 0; i < 6; ++i) turns.Run();
  EXPECT_EQ(turns.turns.running(), 3U);
  EXPECT_FALSE(turns.HasEnded(longest));
  for (int i = 0; i < 30; ++i) turns.Run();
  EXPECT_TRUE(turns.HasEnded(medium));
}

TEST(EncoderTurns, AShortTextFindsAPlaceBesideAnyLongOnes) {
  TurnsHarness turns;
  for (int party = 0; party < 30; ++party) {
    for (int i = 0; i < 5; ++i) turns.Add(std::to_string(party), std::to_string(i), kLongestText / (i + 1));
  }
  for (int i = 0; i < 300; ++i) turns.Run();
  EXPECT_GT(turns.turns.running(), 3U);
  const auto newest = turns.Add("innocent", "1", 30);
  for (int i = 0; i < 3; ++i) turns.Run();
  EXPECT_TRUE(turns.HasEnded(newest));
  EXPECT_LE(turns.largest_sum, EncoderTurns::RowsMax(kLongestText));
}

TEST(EncoderTurns, ATextIsNotOvertakenByOthersOfItsSize) {
  for (const bool same : {true, false}) {
    TurnsHarness turns;
    for (int i = 0; i < 3; ++i) turns.Add("busy" + std::to_string(i % 2), "first" + std::to_string(i), 7000);
    turns.Run();
    const auto waits = turns.Add(same ? "busy0" : "waits", "longest", kLongestText);
    int starts = 0;
    for (int i = 0; i < 20'000 && !turns.HasEnded(waits); ++i) {
      for (const char* party : {"busy0", "busy1", "busy2"}) {
        if (turns.turns.waiting() >= 20) continue;
        ++starts;
        turns.Add(party, std::to_string(starts), starts % 2 == 0 ? 4000 : 1000);
      }
      turns.Run();
    }
    EXPECT_TRUE(turns.HasEnded(waits)) << same;
    EXPECT_LE(turns.largest_sum, EncoderTurns::RowsMax(kLongestText));
  }
}

// Exchanges that came before it have many texts each: none of them starts a second one before it.
TEST(EncoderTurns, ATextIsNotOvertakenByAllTextsOfOlderExchanges) {
  TurnsHarness turns;
  int64_t rows = kLongestText / 2;
  for (const char* party : {"a", "c"}) {
    for (const char* exchange : {"1", "2"}) {
      for (int i = 0; i < 50; ++i) turns.Add(party, party + std::string(exchange), rows);
      rows -= 400;  // they end one after the other
    }
  }
  for (int i = 0; i < 4; ++i) turns.Run();
  EXPECT_EQ(turns.turns.running(), 2U);  // all places for their size
  const auto waits = turns.Add("b", "b1", kLongestText);
  while (!turns.time.contains(waits)) turns.Run();
  EXPECT_GE(turns.turns.waiting(), 197U) << "of 199";
}

TEST(EncoderTurns, PlacesAreForEachSizeThatTheModelHas) {
  EXPECT_EQ(EncoderTurns::RowsMax(512), 4096);
  EXPECT_EQ(EncoderTurns::RowsMax(2048), 4096 + 2 * 2048);
  EXPECT_EQ(EncoderTurns::RowsMax(kLongestText), 4096 + 3 * kLongestText);
}

TEST(EncoderTurns, CanceledTextsLeave) {
  TurnsHarness turns;
  const auto running = turns.Add("a", "1", kLongestText), waiting = turns.Add("a", "1", 100);
  turns.Run();
  EXPECT_EQ(turns.turns.running(), 1U);
  turns.turns.Cancel(running);
  EXPECT_EQ(turns.turns.running(), 0U);
  EXPECT_EQ(turns.turns.waiting(), 1U);
  turns.turns.Cancel(waiting);
  EXPECT_TRUE(turns.turns.empty());
  EXPECT_EQ(turns.turns.Choose(kMixedRows), nullptr);
}

TEST(EncoderTurns, ATaskGoesOnWithoutTextsThatAreCanceled) {
  TurnsHarness turns;
  const auto one = turns.Add("a", "2", 90), other = turns.Add("b", "3", 90);
  EXPECT_EQ(turns.Run().size(), 2U);
  turns.turns.Cancel(one);
  EncoderTurns::Task* const task = turns.turns.Choose(kMixedRows);
  ASSERT_EQ(task->texts.size(), 2U);
  EXPECT_TRUE(task->texts[0]->canceled);
  EXPECT_FALSE(task->texts[1]->canceled);
  turns.turns.EndTurn(*task, milliseconds(100), false);
  turns.turns.Cancel(other);
  EXPECT_TRUE(turns.turns.empty());
  EXPECT_EQ(turns.turns.Choose(kMixedRows), nullptr);
}

}  // namespace
}  // namespace quire::runner::engine
