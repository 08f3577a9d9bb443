// Runners that lie: true sequences of frames with random damage (a bit, a length, a frame twice, left out, or
// of another request), and floods of bytes. Nothing they send may harm the daemon, another model's answer, or
// a later request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "api/ipc/messages.h"
#include "scheduler/dispatcher.h"
#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

class LyingRunnerTest : public DispatcherFixture {
 protected:
  static int Seeds() {
    const char* asked = std::getenv("QUIRE_LYING_RUNNERS");
    return asked != nullptr ? std::atoi(asked) : 200;
  }
  // The most memory that this process, which is the daemon here, ever had. Some KiB less than a moment ago:
  // the kernel counts in parts.
  static size_t PeakBytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      size_t kib = 0;
      if (word == "VmHWM:" && status >> kib) return kib << 10;
    }
    return 0;
  }
  // One runner after the other breaks the protocol with this prompt, for less than `bytes_max` of the
  // daemon's memory.
  void ExpectRefuses(const std::string& prompt, const std::string& reason, size_t bytes_max) {
    SCOPED_TRACE(prompt);
    auto bystander = StartReady(Spec("ok", "honest"), "answer 1000");
    const int pid = bystander->runner_pid();
    const size_t before = PeakBytes();
    const Outcome outcome = Generate(Spec("flood"), prompt);
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.text, "");
    EXPECT_THAT(outcome.failed->message, testing::HasSubstr(reason));
    EXPECT_LT(PeakBytes(), before + bytes_max);
    EXPECT_EQ(Finish(*bystander).finished.value().usage.output_tokens, 1000);
    EXPECT_EQ(bystander->runner_pid(), pid);
    EXPECT_EQ(Generate(Spec("flood"), "answer 2").text, "t0 t1 ");
  }
};

TEST_F(LyingRunnerTest, HarmsItsOwnRequestsOnly) {
  limits().models_max = 2;
  limits().queue_timeout = std::chrono::seconds(2);
  limits().stop_grace = std::chrono::seconds(1);
  auto bystander = StartReady(Spec("ok", "honest"), "answer 1000000");
  const int pid = bystander->runner_pid();
  int failed = 0;
  int whole = 0;
  for (int seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE(seed);
    const std::string mode = "lies-" + std::to_string(seed);
    auto submitted = loop().Wait(Submit(Spec(mode), "answer 20", KeepAlive(0)));
    const bool refused = !submitted || Finish(**submitted).failed;
    ++(refused ? failed : whole);
    submitted = std::unexpected(api::Error());
    const bool look = seed % 10 == 0;
    ASSERT_TRUE(!look || std::holds_alternative<api::TextDelta>(Next(*bystander)));
    ASSERT_EQ(bystander->runner_pid(), pid);
  }
  RecordProperty("failed", failed);
  RecordProperty("whole", whole);
  EXPECT_GT(failed, 0);
  EXPECT_GT(whole, 0) << "the damage leaves nothing to test";
  EXPECT_EQ(Generate(Spec("ok", "next"), "answer 2").text, "t0 t1 ");
}

// Each delta has 8 million ids and no text: it makes no output, so that its credit comes back at once.
TEST_F(LyingRunnerTest, IdsWithoutTextDoNotPileUp) {
  limits().models_max = 2;
  constexpr size_t kFewFrames =
      20 * api::ipc::kEventFrameBytesMax;  // sanitizers keep what was freed for a while
  ExpectRefuses("ids only", "more token ids than tokens", kFewFrames);
  ExpectRefuses("too many ids", "more tokens than the request asked for", kFewFrames);
}

// As many as each of the requests asked for.
TEST_F(LyingRunnerTest, TheIdsOfARunnersAnswersAreBoundedTogether) {
  api::Request request = Raw("16 million ids");
  request.params.num_predict = api::ipc::kAnswerTokensMax;
  std::vector<std::unique_ptr<TokenStream>> answers;
  for (int i = 0; i < 4; ++i) {
    auto submitted = loop().Wait(loop().Spawn(dispatcher().Submit(Spec("ok"), request, {})));
    ASSERT_TRUE(submitted);
    answers.push_back(*std::move(submitted));
    ASSERT_TRUE(std::holds_alternative<api::PromptReady>(Next(*answers.back())));
    for (int taken = 0; taken < 2; ++taken) {
      ASSERT_EQ(std::get<api::TextDelta>(Next(*answers.back())).tokens, api::ipc::kAnswerTokensMax / 2);
    }
  }
  auto one_more = loop().Wait(loop().Spawn(dispatcher().Submit(Spec("ok"), request, {})));
  ASSERT_TRUE(one_more);
  EXPECT_EQ(Finish(**one_more).failed.value().code, api::ErrorCode::kTooLarge);
  answers.clear();
  EXPECT_EQ(Generate(Spec("ok"), "answer 2").text, "t0 t1 ");
}

// 256 MiB of small values as the payload of each message.
TEST_F(LyingRunnerTest, AFrameTooLargeForItsTypeIsNotCollected) {
  limits().models_max = 2;
  constexpr size_t kFirst = 101;
  for (size_t i = 0; i < std::variant_size_v<api::ipc::ToDaemon>; ++i) {
    const std::string type = std::to_string(kFirst + i);
    ExpectRefuses("frame " + type, "of message type " + type + " is over", size_t{16} << 20);
  }
  ExpectRefuses("frame 3", "unknown message type 3", size_t{16} << 20);
}

}  // namespace
}  // namespace quire::scheduler
