// What a request takes along from runner to runner, and how it gets there, over fake runner processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

class DispatcherResumeTest : public DispatcherFixture {
 protected:
  std::unique_ptr<TokenStream> Start(const ModelSpec& spec, api::Request request) {
    TokenStreamResult result = loop().Run(dispatcher().Submit(spec, std::move(request), {}));
    if (!result) throw std::runtime_error(result.error().message);
    EXPECT_TRUE(std::holds_alternative<api::PromptReady>(Next(**result)));
    return *std::move(result);
  }
  static api::Request WithContext(int32_t num_ctx) {
    api::Request request = Raw("moved");
    request.params.num_ctx = num_ctx;
    return request;
  }
  std::string NextText(TokenStream& stream) { return std::get<api::TextDelta>(Next(stream)).text; }
};

// 10,000 bytes: two models fit with small caches only. The next load waits at a gate meanwhile.
TEST_F(DispatcherResumeTest, TheNextRunnerGetsTheCachesThatTheContextNeeds) {
  limits().memory_bytes = 10000;
  MakeGate();
  auto stream = Start(Spec("roomy-4900"), WithContext(2000));
  EXPECT_THAT(NextText(*stream), StartsWith("context=2000 "));
  ASSERT_EQ(::kill(stream->runner_pid(), SIGKILL), 0);
  loop().RunUntil([this] { return dispatcher().Loaded().empty(); });
  ASSERT_TRUE(Generate(Spec("need-4800"), "answer 1").finished);
  OpenGate();
  const Outcome outcome = Finish(*stream);
  EXPECT_TRUE(outcome.finished) << outcome.failed.value_or(api::Error{}).message;
  EXPECT_THAT(outcome.text, StartsWith("context=2000 "));
  EXPECT_THAT(LoadedKeys(), ElementsAre("roomy-4900"))
      << "66 bytes of caches were left beside the other model";
}

TEST_F(DispatcherResumeTest, LargerCachesAreNoLargerContext) {
  limits().memory_bytes = 10000;
  auto other = StartReady(Spec("need-4800"), "stall");
  auto stream = Start(Spec("roomy-4900"), WithContext(2000));
  EXPECT_THAT(NextText(*stream), StartsWith("context=660 "));
  other.reset();
  dispatcher().Unload("need-4800");
  loop().RunUntil([this] { return LoadedKeys().size() == 1; });
  ASSERT_EQ(::kill(stream->runner_pid(), SIGKILL), 0);
  const Outcome outcome = Finish(*stream);
  ASSERT_TRUE(outcome.finished);
  EXPECT_THAT(outcome.text, StartsWith("context=660 "));
  EXPECT_EQ(dispatcher().Loaded().at(0).info.num_ctx, 2340);
}

TEST_F(DispatcherResumeTest, ItsTimeAndWhatWasCachedForItStayTheSame) {
  api::Request request = Raw("moved");
  request.now_s = 12345;
  auto stream = Start(Spec("ok"), std::move(request));
  EXPECT_EQ(NextText(*stream), "context=4096 now=12345 cached=none\n");
  ASSERT_EQ(::kill(stream->runner_pid(), SIGKILL), 0);
  EXPECT_EQ(Finish(*stream).text, "context=4096 now=12345 cached=3\n");
}

TEST_F(DispatcherResumeTest, ARequestWithoutATimeGetsOne) {
  auto stream = Start(Spec("ok"), Raw("moved"));
  const std::string first = NextText(*stream);
  EXPECT_EQ(first.find("now=0"), std::string::npos);
  ASSERT_EQ(::kill(stream->runner_pid(), SIGKILL), 0);
  const std::string second = Finish(*stream).text;
  EXPECT_EQ(first.substr(0, first.find(" cached")), second.substr(0, second.find(" cached")));
}

// All go to the next runner at once, and the link holds one of them.
TEST_F(DispatcherResumeTest, AnswersThatGoOnWaitForRoomOnTheLink) {
  limits().link_bytes_max = size_t{3} << 20;
  std::vector<std::unique_ptr<TokenStream>> streams;
  std::string expected;
  for (int i = 0; i < 600; ++i) expected += "t" + std::to_string(i) + " ";
  for (int i = 0; i < 3; ++i) {
    api::Request request = Raw("answer 600");
    request.go_template = std::string(size_t{2} << 20, 't');
    streams.push_back(Start(Spec("ok"), std::move(request)));
  }
  ASSERT_EQ(::kill(streams[0]->runner_pid(), SIGKILL), 0);
  for (const auto& stream : streams) {
    const Outcome outcome = Finish(*stream);
    EXPECT_FALSE(outcome.failed) << outcome.failed->message;
    EXPECT_EQ(outcome.text, expected);
  }
}

// Those that wait for room do not hold up others.
TEST_F(DispatcherResumeTest, ASmallRequestIsSentBeforeLargeOnesThatWaitForRoom) {
  limits().link_bytes_max = size_t{3} << 20;
  std::vector<std::unique_ptr<TokenStream>> large;
  for (int i = 0; i < 3; ++i) {
    api::Request request = Raw("stall");
    request.go_template = std::string(size_t{2} << 20, 't');
    large.push_back(Start(Spec("ok"), std::move(request)));
  }
  const auto left = StartReady(Spec("ok"), "stall");
  ASSERT_EQ(::kill(large[0]->runner_pid(), SIGKILL), 0);
  loop().RunUntil([this] { return dispatcher().Loaded().empty(); });
  large.pop_back();  // its client leaves while it waits
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
  for (const auto& stream : large) EXPECT_NE(stream->runner_pid(), 0);
}

}  // namespace
}  // namespace quire::scheduler
