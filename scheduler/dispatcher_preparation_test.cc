// Large requests on their way to a fake runner: the next one is sent when those before it are prepared.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

constexpr size_t kKiB = 1024;

// Two large requests of each party fit, and those of all three do.
class DispatcherPreparationTest : public DispatcherFixture {
 protected:
  void SetUp() override {
    limits().preparation = {.small = 16 * kKiB, .all = 130 * kKiB, .party = 90 * kKiB};
  }

  TokenStreamTask SubmitLarge(const std::string& party, const std::string& what, size_t bytes = 40 * kKiB) {
    api::Request request = Raw(what);
    request.client.party = fair::PartyNamed(party);
    request.go_template = std::string(bytes, 't');
    return loop().Spawn(dispatcher().Submit(Spec("ok"), std::move(request), {}));
  }
  // It is sent.
  std::unique_ptr<TokenStream> Sent(const TokenStreamTask& task) {
    TokenStreamResult sent = loop().Wait(task);
    EXPECT_TRUE(sent) << sent.error().message;
    return sent ? *std::move(sent) : nullptr;
  }
  // All that was sent by now has been received: another request is answered.
  void AnswerAnother() { EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 "); }
};

TEST_F(DispatcherPreparationTest, ARunnerHasABoundedPartOfThem) {
  std::vector<std::unique_ptr<TokenStream>> sent;
  for (int i = 0; i < 2; ++i) sent.push_back(Sent(SubmitLarge("alice", "mute")));
  const auto third = SubmitLarge("alice", "mute"), fourth = SubmitLarge("alice", "mute");
  AnswerAnother();
  EXPECT_FALSE(third->done());
  sent.pop_back();  // its client leaves
  sent.push_back(Sent(third));
  AnswerAnother();
  EXPECT_FALSE(fourth->done());
  fourth->Cancel();
  AnswerAnother();
  EXPECT_EQ(dispatcher().CheckInvariants(), "");
}

TEST_F(DispatcherPreparationTest, TheNextOneIsSentWhenOneIsPrepared) {
  std::vector<std::unique_ptr<TokenStream>> sent;
  for (int i = 0; i < 10; ++i) sent.push_back(Sent(SubmitLarge("alice", "prepared")));
  for (int i = 0; i < 10; ++i) sent.push_back(Sent(SubmitLarge("alice", "stall")));
}

TEST_F(DispatcherPreparationTest, OthersDoNotWaitForThem) {
  std::vector<std::unique_ptr<TokenStream>> sent;
  for (int i = 0; i < 2; ++i) sent.push_back(Sent(SubmitLarge("alice", "mute")));
  const auto waits = SubmitLarge("alice", "mute");
  EXPECT_EQ(Finish(*Sent(SubmitLarge("bob", "answer 2"))).text, "t0 t1 ");
  EXPECT_EQ(Finish(*Sent(SubmitLarge("alice", "answer 1", 10 * kKiB))).text, "t0 ") << "a small one";
  EXPECT_EQ(Finish(*Sent(SubmitLarge("carol", "answer 1", 1000 * kKiB))).text, "t0 ")
      << "larger than all may have";
  EXPECT_FALSE(waits->done());
}

// One that is less large does not pass it again and again.
TEST_F(DispatcherPreparationTest, APartysLargeRequestsGoInTheOrderInWhichTheyCame) {
  auto first = Sent(SubmitLarge("alice", "mute"));
  const auto largest = SubmitLarge("alice", "mute", 80 * kKiB);
  const auto behind = SubmitLarge("alice", "mute");
  AnswerAnother();
  EXPECT_FALSE(largest->done() || behind->done());
  first.reset();
  const auto second = Sent(largest);
  AnswerAnother();
  EXPECT_FALSE(behind->done());
}

TEST_F(DispatcherPreparationTest, AnswersGoOnInTheNextRunnerOneAfterTheOther) {
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(Sent(SubmitLarge("alice", "answer 600")));
  std::string expected;
  for (int i = 0; i < 600; ++i) expected += "t" + std::to_string(i) + " ";
  ASSERT_EQ(::kill(streams[0]->runner_pid(), SIGKILL), 0);
  for (const auto& stream : streams) {
    const Outcome outcome = Finish(*stream);
    EXPECT_FALSE(outcome.failed) << outcome.failed->message;
    EXPECT_EQ(outcome.text, expected);
  }
}

TEST_F(DispatcherPreparationTest, ATextThatCannotFitIsRefusedBeforeItWaits) {
  const auto submit = [this](int32_t num_ctx, size_t bytes) {
    api::Request request = Raw(std::string(bytes, 'x'));
    request.params.num_ctx = num_ctx;
    request.overflow = api::Overflow::kRefuse;
    return loop().Spawn(dispatcher().Submit(Spec("ok"), std::move(request), {}));
  };
  const api::Error refused = RefusalOf(submit(512, 1100 * kKiB));
  EXPECT_EQ(refused.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(refused.tokens_max, 512);
  EXPECT_TRUE(dispatcher().Loading().empty()) << "nothing is loaded for it";
  EXPECT_FALSE(HasChildren());
  const auto unknown = submit(0, 1100 * kKiB);
  loop().RunUntil([this] { return !dispatcher().Loading().empty(); });
  EXPECT_EQ(RefusalOf(unknown).code, api::ErrorCode::kContextLengthExceeded) << "once it is loaded";
}

}  // namespace
}  // namespace quire::scheduler
