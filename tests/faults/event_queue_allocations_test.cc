// What a queue of events holds when an allocation of Push() fails: all of the event, or nothing of it. Then
// the next runner says it again, and no text is lost.
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "scheduler/event_queue.h"
#include "tests/faults/fault_control.h"

namespace quire::faults {
namespace {

constexpr int kDeltas = 40;  // some more than the first blocks of a deque and of a vector hold

api::TextDelta Delta(int number) {
  return {.text = "a text that is not short, number " + std::to_string(number),
          .tokens = 1,
          .token_ids = {number}};
}

// True: the push failed. The queue then has `before` deltas, and resumes behind them.
bool PushFails(int before, int64_t point) {
  scheduler::EventQueue queue;
  EXPECT_TRUE(queue.Push(api::PromptReady{7, 3}));
  for (int i = 0; i < before; ++i) EXPECT_TRUE(queue.Push(Delta(i)));
  api::Event event = Delta(before);
  bool failed = false;
  Faults().allocation_countdown = point;
  try {
    (void)queue.Push(std::move(event));
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  Faults().allocation_countdown = 0;
  const api::ipc::Resume resume = queue.ResumePoint();
  int64_t deltas = 0;
  while (const auto popped = queue.Pop()) deltas += std::holds_alternative<api::TextDelta>(*popped) ? 1 : 0;
  const int expected = failed ? before : before + 1;
  EXPECT_EQ(deltas, expected);
  EXPECT_EQ(resume.deltas, expected);
  EXPECT_EQ(resume.tokens.size(),
            static_cast<size_t>(expected > 0 ? expected - 1 : 0));  // the last is sampled again
  return failed;
}

TEST(FailingAllocations, AnEventIsQueuedWholeOrNotAtAll) {
  int failures = 0;
  for (int before = 0; before < kDeltas; ++before) {
    for (int64_t point = 1; PushFails(before, point); ++point) ++failures;
  }
  EXPECT_GT(failures, 0);
}

}  // namespace
}  // namespace quire::faults
