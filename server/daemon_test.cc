// The program quired: how it starts, refuses to start, and ends. Its runner is never asked for anything here.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <vector>

#include "server/store/files.h"
#include "server/testing/raw_client.h"
#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;

constexpr std::string_view kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

// A running quired whose stderr is read here.
class Quired {
 public:
  explicit Quired(const std::vector<std::string>& environment, const testing::StoreFixture& store) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::vector<std::string> texts = environment;
    const std::string others[] = {"OLLAMA_MODELS=" + store.root().string(), "QUIRE_RUNNER=/bin/true",
                                  "PATH=/bin:/usr/bin", "QUIRE_SNAPSHOT_BYTES=0"};
    for (const std::string& other : others) {  // of two equal names glibc takes the first, qemu-user the last
      const std::string name = other.substr(0, other.find('=') + 1);
      if (std::ranges::none_of(environment, [&](const auto& text) { return text.starts_with(name); })) {
        texts.push_back(other);
      }
    }
    std::vector<char*> variables;
    for (std::string& text : texts) variables.push_back(text.data());
    variables.push_back(nullptr);
    std::string program = QUIRE_QUIRED;
    char* arguments[] = {program.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, variables.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    stderr_ = ends[0];
  }
  ~Quired() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(stderr_);
  }
  Quired(const Quired&) = delete;
  Quired& operator=(const Quired&) = delete;

  void Signal(int signal) const { ::kill(pid_, signal); }

  // Reads on until the text appears; false when the program ended first.
  bool WaitFor(std::string_view text) {
    while (output_.find(text) == std::string::npos) {
      char bytes[1024];
      const ssize_t got = ::read(stderr_, bytes, sizeof(bytes));
      if (got <= 0) return false;
      output_.append(bytes, static_cast<size_t>(got));
    }
    return true;
  }

  // The port of "listening address=127.0.0.1:PORT".
  uint16_t Port() {
    constexpr std::string_view kMark = "address=127.0.0.1:";
    EXPECT_TRUE(WaitFor(kMark) && WaitFor("models=")) << output_;
    const char* begin = output_.data() + output_.find(kMark) + kMark.size();
    uint16_t port = 0;
    std::from_chars(begin, output_.data() + output_.size(), port);
    return port;
  }

  // Waits for its end; -1 when a signal was it.
  int ExitStatus() {
    WaitFor("\x01");  // never printed
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& output() const { return output_; }

  // Whether it has a file of this name open.
  bool HasOpen(const std::string& name) const {
    std::error_code ignored;
    for (const auto& fd : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid_), ignored)) {
      if (std::filesystem::read_symlink(fd.path(), ignored).filename() == name) return true;
    }
    return false;
  }

 private:
  pid_t pid_ = -1;
  int stderr_ = -1;
  std::string output_;
};

void ExpectRefusal(const std::vector<std::string>& environment, const std::string& reason) {
  const testing::StoreFixture store;
  Quired quired(environment, store);
  EXPECT_EQ(quired.ExitStatus(), 1);
  // Log lines may come before it.
  const std::string output = quired.output();
  const size_t begin = output.find("Error: ");
  ASSERT_NE(begin, std::string::npos) << output;
  EXPECT_TRUE(begin == 0 || output[begin - 1] == '\n') << output;
  EXPECT_THAT(output.substr(begin), HasSubstr(reason));
  EXPECT_EQ(std::ranges::count(output.substr(begin), '\n'), 1) << output;
}

TEST(DaemonStart, RefusesWithOneLine) {
  ExpectRefusal({"OLLAMA_HOST=192.0.2.1:0"}, "QUIRE_ALLOW_REMOTE=1 (--allow-remote)");
  ExpectRefusal({"OLLAMA_HOST=127.0.0.1:0", "OLLAMA_MAX_QUEUE=none"}, "OLLAMA_MAX_QUEUE");
  ExpectRefusal({"OLLAMA_HOST=127.0.0.1:0", "QUIRE_RUNNER=/nowhere/quire-runner"}, "/nowhere/quire-runner");
}

TEST(DaemonStart, ARefusedAddressLeavesTheStoreAlone) {
  const testing::StoreFixture store;
  Quired quired({"OLLAMA_HOST=192.0.2.1:0"}, store);
  EXPECT_EQ(quired.ExitStatus(), 1);
  EXPECT_FALSE(std::filesystem::exists(store.root()));
}

TEST(DaemonStart, EveryInterfaceWithoutKeysIsLoopbackAndAWarning) {
  for (const char* host : {"0.0.0.0:0", "[::]:0", ":0"}) {
    const testing::StoreFixture store;
    Quired quired({std::string("OLLAMA_HOST=") + host}, store);
    RawClient client(quired.Port());
    client.Send(kHealth);
    EXPECT_EQ(client.Read().status, 200);
    EXPECT_TRUE(quired.WaitFor("to serve other machines, create a key")) << quired.output();
    EXPECT_TRUE(quired.WaitFor("add the line QUIRE_ALLOW_REMOTE=1")) << quired.output();
  }
}

TEST(DaemonStart, ABusyPortIsOneLine) {
  const testing::StoreFixture store;
  Quired first({"OLLAMA_HOST=127.0.0.1:0"}, store);
  const uint16_t port = first.Port();
  ExpectRefusal({fmt::format("OLLAMA_HOST=127.0.0.1:{}", port)}, fmt::format("127.0.0.1:{}", port));
  const testing::StoreFixture second;
  Quired refused({fmt::format("OLLAMA_HOST=127.0.0.1:{}", port)}, second);
  EXPECT_EQ(refused.ExitStatus(), 1);
  EXPECT_FALSE(std::filesystem::exists(second.root()));
}

TEST(DaemonStart, ListensBeyondLoopbackWhenToldTo) {
  const testing::StoreFixture store;
  Quired quired({"OLLAMA_HOST=0.0.0.0:0", "QUIRE_ALLOW_REMOTE=1"}, store);
  EXPECT_TRUE(quired.WaitFor("listening address=0.0.0.0:")) << quired.output();
}

TEST(DaemonEnd, ATermSignalEndsItWithZero) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const testing::StoreFixture store;
    Quired quired({"OLLAMA_HOST=127.0.0.1:0"}, store);
    RawClient idle(quired.Port());
    idle.Send(kHealth);
    EXPECT_EQ(idle.Read().status, 200);
    quired.Signal(signal);
    EXPECT_EQ(quired.ExitStatus(), 0) << quired.output();
    EXPECT_TRUE(idle.AtEnd());
  }
}

TEST(DaemonEnd, ASecondSignalDoesNotWait) {
  const testing::StoreFixture store;
  Quired quired({"OLLAMA_HOST=127.0.0.1:0", "QUIRE_DRAIN_TIMEOUT=1h"}, store);
  RawClient uploading(quired.Port());
  uploading.Send(
      "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n");
  EXPECT_EQ(uploading.Read().status, 100);  // its body is waited for now
  quired.Signal(SIGTERM);
  EXPECT_TRUE(quired.WaitFor("draining"));
  quired.Signal(SIGTERM);
  EXPECT_EQ(quired.ExitStatus(), 0) << quired.output();
  EXPECT_THAT(quired.output(), HasSubstr("stopping immediately"));
}

// Work that outlasts the drain stops: its request ends before the store goes, whoever holds the lock.
TEST(DaemonEnd, ARequestThatOutlastsTheDrainEndsBeforeTheStore) {
  const testing::StoreFixture store;
  Quired quired({"OLLAMA_HOST=127.0.0.1:0", "QUIRE_DRAIN_TIMEOUT=1ms"}, store);
  RawClient client(quired.Port());
  const auto root = StoreDirectory::OpenRoot(store.root());
  ASSERT_TRUE(root);
  auto lock = root->Lock(".quire-lock");
  ASSERT_TRUE(lock);
  client.Send(
      "POST /api/copy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 32\r\n\r\n"
      R"({"source":"a","destination":"b"})");
  while (!quired.HasOpen(".quire-lock")) ::usleep(1000);  // until the copy waits for the lock
  quired.Signal(SIGTERM);
  EXPECT_TRUE(quired.WaitFor("stopped connections_left=")) << quired.output();
  EXPECT_EQ(quired.ExitStatus(), 0) << quired.output();
  EXPECT_THAT(quired.output(), HasSubstr("path=/api/copy"));
}

}  // namespace
}  // namespace quire::server
