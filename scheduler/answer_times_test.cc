#include "scheduler/answer_times.h"

#include <gtest/gtest.h>

#include <chrono>

namespace quire::scheduler {
namespace {

using std::chrono::seconds;

const AnswerTimes::Time kStartOfAnswer{};

constexpr int64_t Seconds(int64_t count) { return count * 1'000'000'000; }

const api::Event kReady = api::PromptReady{.prompt_tokens = 11, .cached_tokens = 3};
const api::Event kDelta = api::TextDelta{.text = "x", .logprobs = {}, .tokens = 1};

TEST(AnswerTimes, CountsWhatARunnerTakes) {
  AnswerTimes times;
  times.Sent(kStartOfAnswer + seconds(10));
  EXPECT_FALSE(times.spent());
  times.Record(kReady, kStartOfAnswer + seconds(11));
  times.Record(kDelta, kStartOfAnswer + seconds(14));
  times.Record(kDelta, kStartOfAnswer + seconds(15));
  times.Record(kDelta, kStartOfAnswer + seconds(19));
  ASSERT_TRUE(times.spent());
  EXPECT_EQ(times.spent()->cached_tokens, 3);
  EXPECT_EQ(times.spent()->queue_ns, Seconds(1));
  EXPECT_EQ(times.spent()->prompt_ns, Seconds(3));
  EXPECT_EQ(times.spent()->output_ns, Seconds(5));
}

TEST(AnswerTimes, CountsNeitherTheTimeBetweenRunnersNorWhatIsComputedAgain) {
  AnswerTimes times;
  times.Sent(kStartOfAnswer);
  times.Record(kReady, kStartOfAnswer + seconds(1));
  times.Record(kDelta, kStartOfAnswer + seconds(2));
  times.Record(kDelta, kStartOfAnswer + seconds(4));
  times.Sent(kStartOfAnswer + seconds(100));
  times.Record(api::PromptReady{.prompt_tokens = 11, .cached_tokens = 9}, kStartOfAnswer + seconds(101));
  times.Record(kDelta, kStartOfAnswer + seconds(110));
  times.Record(kDelta, kStartOfAnswer + seconds(113));
  EXPECT_EQ(times.spent()->cached_tokens, 3) << "the first runner's";
  EXPECT_EQ(times.spent()->queue_ns, Seconds(1));
  EXPECT_EQ(times.spent()->prompt_ns, Seconds(1));
  EXPECT_EQ(times.spent()->output_ns, Seconds(2 + 3));
}

TEST(AnswerTimes, APromptThatIsComputedTwiceBeforeTheFirstTokenTakesBothTimes) {
  AnswerTimes times;
  times.Sent(kStartOfAnswer);
  times.Record(kReady, kStartOfAnswer + seconds(1));
  times.Record(api::PrefillProgress{5}, kStartOfAnswer + seconds(4));
  times.Sent(kStartOfAnswer + seconds(100));
  times.Record(kReady, kStartOfAnswer + seconds(101));
  times.Record(kDelta, kStartOfAnswer + seconds(107));
  EXPECT_EQ(times.spent()->prompt_ns, Seconds(3 + 6));
  EXPECT_EQ(times.spent()->output_ns, 0);
}

TEST(AnswerTimes, ARefusedRequestHasSpentNothing) {
  AnswerTimes times;
  times.Sent(kStartOfAnswer);
  times.Record(api::Failed{{api::ErrorCode::kInvalidArgument, "no"}}, kStartOfAnswer + seconds(1));
  EXPECT_FALSE(times.spent());
}

}  // namespace
}  // namespace quire::scheduler
