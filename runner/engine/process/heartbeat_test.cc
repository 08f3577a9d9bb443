#include "runner/engine/process/heartbeat.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "runner/engine/process/preparation_queue.h"
#include "runner/engine/steps/engine_stats.h"

namespace quire::runner::engine {
namespace {

constexpr std::array kAnyLane = {Lane::kLight, Lane::kShort, Lane::kMedium};

class Heartbeats : public testing::Test {
 protected:
  // The next beat of an engine that loops.
  uint64_t Next(std::chrono::nanoseconds preparation_max = std::chrono::hours(1)) {
    ++engine_stats_.progress;
    return source_.Next(preparation_max).progress;
  }
  PreparationJob Begin(uint64_t id) {
    queue_.Push({.submit = {.id = api::RequestId{id}, .request = {}}, .arrived = {}});
    return *queue_.Pop(kAnyLane);
  }
  // Progress that no heartbeat shows.
  void ExpectStuck() {
    const uint64_t before = Next();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Next(), before);
  }
  void ExpectProgress() {
    for (int i = 0; i < 5; ++i) {
      const uint64_t before = Next();
      EXPECT_EQ(Next(), before + 1);
    }
  }

  EngineStats engine_stats_;
  PreparationQueue queue_;
  std::vector<api::RequestId> stuck_;
  HeartbeatSource source_{engine_stats_, queue_, [this](api::RequestId id) { stuck_.push_back(id); }};
};

TEST_F(Heartbeats, HaveTheFiguresOfTheEngine) {
  engine_stats_.steps = 2;
  engine_stats_.running = 3;
  engine_stats_.waiting = 4;
  engine_stats_.cache_bytes_used = 5;
  const auto heartbeat = source_.Next({});
  EXPECT_EQ(heartbeat.steps, 2U);
  EXPECT_EQ(heartbeat.running, 3);
  EXPECT_EQ(heartbeat.waiting, 4);
  EXPECT_EQ(heartbeat.cache_bytes_used, 5);
  ExpectProgress();
}

// It blocks, or computes and counts nothing of it: its CPU time does not matter.
TEST_F(Heartbeats, APreparationThatCountsNoWorkShowsNoProgress) {
  const PreparationJob job = Begin(1);
  for (int i = 1; i < PreparationQueue::kStuckQuestions; ++i) {
    const uint64_t before = engine_stats_.progress;
    EXPECT_EQ(Next(), before + 1);
  }
  ExpectStuck();
  EXPECT_EQ(stuck_, std::vector{job.submit.id});
  ++*job.checks;
  const uint64_t before = engine_stats_.progress;
  EXPECT_EQ(Next(), before + 1);
  queue_.Finish(job.submit.id);
  ExpectProgress();
}

TEST_F(Heartbeats, OneThatIsStuckIsSeenBesideOthers) {
  const PreparationJob stuck = Begin(1);
  for (uint64_t id = 2; id < 10; ++id) {
    Next();
    queue_.Finish(Begin(id).submit.id);
  }
  ExpectStuck();
  EXPECT_EQ(stuck_, std::vector{stuck.submit.id});
}

TEST_F(Heartbeats, OneThatCountsItsWorkMayTakeItsTime) {
  const PreparationJob job = Begin(1);
  for (int i = 0; i < 20; ++i) {
    ++*job.checks;
    const uint64_t before = engine_stats_.progress;
    EXPECT_EQ(Next(), before + 1);
  }
}

TEST_F(Heartbeats, OneBeyondItsCpuTimeShowsNoProgress) {
  const PreparationJob job = Begin(1);
  const uint64_t before = Next();
  ++*job.checks;
  EXPECT_EQ(Next(-std::chrono::hours(1)), before);
  ++*job.checks;
  EXPECT_EQ(Next(), before + 2);
}

// What waits, for its turn or for memory of formats, is not stuck.
TEST_F(Heartbeats, RequestsThatWaitDoNotCount) {
  for (uint64_t id = 1; id < 4; ++id) {
    queue_.Push({.submit = {.id = api::RequestId{id}, .request = {}}, .arrived = {}});
  }
  queue_.Wait(*queue_.Pop(kAnyLane));
  ExpectProgress();
}

}  // namespace
}  // namespace quire::runner::engine
