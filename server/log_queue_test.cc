// The log's queue before a reader that stands still.
#include "server/log_queue.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <new>
#include <string>
#include <thread>

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

LogQueue::Entry Dropped(uint64_t count) { return {fmt::format("dropped {}\n", count)}; }

// A pipe whose read end nobody has read yet.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  ~Pipe() { ::close(ends_[0]); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  LogQueue::Output output() const {
    return {[fd = ends_[1]](const LogQueue::Entry& entry) {
              EXPECT_EQ(::write(fd, entry[0].data(), entry[0].size()), static_cast<ssize_t>(entry[0].size()));
            },
            Dropped};
  }
  // All of it, line by line, until a line is `last`.
  std::vector<std::string> ReadUntil(const std::string& last) {
    std::string text;
    while (!text.ends_with(last)) {
      char bytes[4096];
      const ssize_t got = ::read(ends_[0], bytes, sizeof(bytes));
      if (got <= 0) break;
      text.append(bytes, static_cast<size_t>(got));
    }
    std::vector<std::string> lines;
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      lines.push_back(text.substr(0, end));
    }
    return lines;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(LogQueue, APipeThatNobodyReadsStopsNobody) {
  Pipe pipe;
  LogQueue queue(pipe.output(), {.entries = 1000});  // 200 KB; a pipe holds 64 KiB
  const std::string filler(200, 'x');
  constexpr int kLines = 10000;
  for (int i = 0; i < kLines; ++i) queue.Push({fmt::format("{} {}\n", i, filler)});
  queue.Push({"end\n"});
  EXPECT_FALSE(queue.Drain(1ms));
  EXPECT_GT(queue.dropped(), 0U);

  // Lines that are still there are in order, and the others are counted where they are missing.
  const std::vector<std::string> lines = pipe.ReadUntil("end\n");
  uint64_t next = 0;
  for (const std::string& line : lines) {
    if (line == "end") break;
    if (line.starts_with("dropped ")) {
      next += std::stoull(line.substr(8));
    } else {
      EXPECT_EQ(std::stoull(line), next++);
    }
  }
  EXPECT_EQ(next, uint64_t{kLines});
  EXPECT_TRUE(queue.Drain(1min));
}

TEST(LogQueue, TheOldestEntriesAreDroppedByNumberAndBySize) {
  for (const LogQueue::Limits limits : {LogQueue::Limits{.entries = 2}, LogQueue::Limits{.bytes = 4}}) {
    std::promise<void> entered;
    std::promise<void> released;
    std::vector<std::string> written;
    bool first = true;
    LogQueue queue({[&](const LogQueue::Entry& entry) {
                      written.push_back(entry[0]);
                      if (!std::exchange(first, false)) return;
                      entered.set_value();
                      released.get_future().wait();
                    },
                    Dropped},
                   limits);
    queue.Push({"0\n"});
    entered.get_future().wait();
    for (const char* line : {"1\n", "2\n", "3\n", "4\n"}) queue.Push({line});
    EXPECT_EQ(queue.dropped(), 2U);
    released.set_value();
    EXPECT_TRUE(queue.Drain(1min));
    EXPECT_THAT(written, ElementsAre("0\n", "dropped 2\n", "3\n", "4\n"));
  }
}

// A program that ends by a signal still has its last lines written by the other thread.
TEST(LogQueueDeathTest, ACrashWritesTheLastLines) {
  EXPECT_EXIT(
      {
        LogQueue queue({[](const LogQueue::Entry& entry) {
                          std::this_thread::sleep_for(20ms);
                          std::fputs(entry[0].c_str(), stderr);
                        },
                        Dropped});
        queue.DrainAtCrash();
        for (const char* line : {"one\n", "two\n", "last line\n"}) queue.Push({line});
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "last line");
}

// Nothing is waited for beyond the bound when the log stands still.
TEST(LogQueueDeathTest, ACrashDoesNotWaitForAReader) {
  EXPECT_EXIT(
      {
        Pipe pipe;
        LogQueue queue(pipe.output());
        queue.DrainAtCrash();
        for (int i = 0; i < 1000; ++i) queue.Push({std::string(200, 'x')});
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace quire::server
