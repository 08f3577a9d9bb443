#include "scheduler/runner_output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/runner_process.h"
#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr OutputLimiter::Time kBegin{};

std::string Lines(int64_t count, const std::string& line = "x\n") {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += line;
  return text;
}

TEST(OutputLimiter, LinesAreWholeAndPrintable) {
  OutputLimiter limiter(kBegin);
  EXPECT_THAT(limiter.Append("one\ntw", kBegin), ElementsAre("one"));
  EXPECT_THAT(limiter.Append("o\n\x1b[31m\"quoted\"\t\r\n\xff\n", kBegin),
              ElementsAre("two", " [31m'quoted'  ", "\xEF\xBF\xBD"));
  EXPECT_THAT(limiter.Append("no end", kBegin), IsEmpty());
  EXPECT_THAT(limiter.Finish(), ElementsAre("no end"));
}

TEST(OutputLimiter, ALineIsBounded) {
  OutputLimiter limiter(kBegin);
  for (int i = 0; i < 100; ++i) EXPECT_THAT(limiter.Append(std::string(1000, 'x'), kBegin), IsEmpty());
  EXPECT_THAT(limiter.Append("\n", kBegin),
              ElementsAre(std::string(OutputLimiter::kLineBytesMax, 'x') + "..."));
}

TEST(OutputLimiter, TheRateIsBoundedAndDroppedLinesAreCounted) {
  OutputLimiter limiter(kBegin);
  EXPECT_EQ(limiter.Append(Lines(1000), kBegin).size(), OutputLimiter::kBurstLines);
  EXPECT_TRUE(limiter.exhausted());
  EXPECT_THAT(limiter.Append("more\n", kBegin + milliseconds(100)), IsEmpty());
  EXPECT_THAT(limiter.Append("y\nz\n", kBegin + milliseconds(200)), ElementsAre("[801 lines dropped]", "y"));
  // A minute gives no more than a burst.
  EXPECT_EQ(limiter.Append(Lines(1000), kBegin + seconds(600)).size(), OutputLimiter::kBurstLines + 1);
}

TEST(OutputLimiter, TheLastLinesAreNotDropped) {
  OutputLimiter limiter(kBegin);
  (void)limiter.Append(Lines(5000) + "fatal\nthe end", kBegin);
  const std::vector<std::string> last = limiter.Finish();
  ASSERT_EQ(last.size(), OutputLimiter::kLastLines + 1);
  EXPECT_EQ(last.front(), "[4782 lines dropped]");
  EXPECT_EQ(last[last.size() - 2], "fatal");
  EXPECT_EQ(last.back(), "the end");
}

// The default logger writes to a text meanwhile.
class RunnerOutputTest : public DispatcherFixture {
 protected:
  RunnerOutputTest() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~RunnerOutputTest() override { spdlog::set_default_logger(before_); }

  std::string log() const { return log_.str(); }
  static int64_t Count(const std::string& text, const std::string& part) {
    int64_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
  }

 private:
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(RunnerOutputTest, LinesHaveTheModelAndTheProcess) {
  auto stream = StartReady(Spec("ok", "a model"), "print");
  const int pid = stream->runner_pid();
  EXPECT_TRUE(Finish(*stream).finished);
  Drain(std::chrono::steady_clock::now());
  for (const char* text : {"to standard output", "to standard error"}) {
    EXPECT_THAT(log(), HasSubstr("runner output model=a model runner_pid=" + std::to_string(pid) +
                                 " text=\"" + text + "\""));
  }
}

TEST_F(RunnerOutputTest, AFloodIsBoundedAndTheLastLineIsLogged) {
  const auto start = std::chrono::steady_clock::now();
  auto bystander = StartReady(Spec("ok", "other"), "answer 200");
  auto flooding = StartReady(Spec("ok"), "print flood");
  EXPECT_TRUE(Finish(*bystander).finished);
  EXPECT_TRUE(Finish(*flooding).finished) << "the runner waited for the log";
  Drain(std::chrono::steady_clock::now());
  const auto elapsed = std::chrono::ceil<seconds>(std::chrono::steady_clock::now() - start).count();
  const int64_t lines = Count(log(), "runner output model=ok ");
  const auto last = static_cast<int64_t>(OutputLimiter::kLastLines);
  EXPECT_GE(lines, OutputLimiter::kBurstLines);
  // A line that counts the dropped ones may precede each.
  EXPECT_LE(lines, OutputLimiter::kBurstLines + 2 * OutputLimiter::kLinesPerSecond * elapsed + last + 1);
  EXPECT_THAT(log(), HasSubstr("lines dropped]"));
  EXPECT_THAT(log(), HasSubstr("text=\"the last line\""));
}

// Nobody reads: the runner goes on, and what it writes is dropped.
TEST_F(RunnerOutputTest, AFullPipeDoesNotStopTheRunner) {
  auto started = loop().Run(RunnerProcess::Start(loop().executor(), FakeRunnerPath(), "flood-then-exit"));
  ASSERT_TRUE(started);
  const auto status = loop().Run((*started)->Wait());
  EXPECT_EQ(status.value().ToString(), "exited with status 7");
}

}  // namespace
}  // namespace quire::scheduler
