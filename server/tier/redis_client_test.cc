// With a server that answers whatever a test wants.
#include "server/tier/redis_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/base/file_descriptor.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Answers the first query, which is that of Connect(), and leaves the second one to `answer`.
class ScriptedRedis {
 public:
  ScriptedRedis(const fs::path& path, std::function<void(int fd)> answer)
      : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.native().copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::jthread([this, answer = std::move(answer)] {
      const api::FileDescriptor fd(::accept(listener_.get(), nullptr, nullptr));
      std::array<char, 4096> bytes;
      if (::recv(fd.get(), bytes.data(), bytes.size(), 0) <= 0 || !SendAll(fd.get(), "+PONG\r\n")) return;
      if (::recv(fd.get(), bytes.data(), bytes.size(), 0) > 0) answer(fd.get());
      while (::recv(fd.get(), bytes.data(), bytes.size(), 0) > 0) {
      }
    });
  }

 private:
  api::FileDescriptor listener_;
  std::jthread thread_;  // last
};

class RedisClients : public ::testing::Test {
 protected:
  RedisClients() {
    std::string pattern = (fs::temp_directory_path() / "quire-redis-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RedisClients() override { fs::remove_all(folder_); }

  // The error of a query that is answered so; "" where it has none.
  std::string ErrorOf(std::function<void(int fd)> answer, steady_clock::duration time = seconds(60),
                      size_t bytes_max = RedisClient::kValueBytesMax) const {
    fs::remove(folder_ / "sock");
    const ScriptedRedis server(folder_ / "sock", std::move(answer));
    RedisClient client({.unix_socket = folder_ / "sock"});
    const auto connected = client.Connect(steady_clock::now() + seconds(60));
    EXPECT_TRUE(connected) << connected.error().message;
    const std::vector<RedisClient::Command> commands = {{"GET", "key"}};
    const auto replies = client.Query(commands, steady_clock::now() + time, bytes_max);
    client.Close();
    return replies ? "" : replies.error().message;
  }

  fs::path folder_;
};

uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

TEST_F(RedisClients, AStatedSizeTakesNoMemoryBeforeItsBytes) {
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins here
  const uint64_t before = PeakBytes();
  ASSERT_GT(before, 0u);
  const auto states = [](int fd) { SendAll(fd, "$268435456\r\nonly these"); };
  EXPECT_THAT(ErrorOf(states, milliseconds(200)), HasSubstr("in time"));
  EXPECT_LT(PeakBytes() - before, uint64_t{32} << 20);
}

TEST_F(RedisClients, AValueComesInAnyPieces) {
  const std::string value(300'000, 'v');
  const auto pieces = [&](int fd) {
    SendAll(fd, "$300000\r\n");
    for (size_t at = 0; at < value.size(); at += 7'001)
      SendAll(fd, std::string_view(value).substr(at, 7'001));
    SendAll(fd, "\r\n");
  };
  EXPECT_EQ(ErrorOf(pieces), "");
  EXPECT_THAT(ErrorOf(pieces, seconds(60), 200'000), HasSubstr("too long"));
}

// One byte at a time would take days.
TEST_F(RedisClients, TheDeadlineIsThatOfTheWholeReply) {
  const auto drips = [](int fd) {
    SendAll(fd, "$268435456\r\n");
    while (SendAll(fd, "x")) ::usleep(1000);
  };
  EXPECT_THAT(ErrorOf(drips, milliseconds(300)), HasSubstr("in time"));
}

TEST_F(RedisClients, RepliesWithoutAnEndAreRefused) {
  const auto lists = [](int fd) {
    SendAll(fd, "*65536\r\n");
    std::string items = "*1000\r\n";
    for (int i = 0; i < 1000; ++i) items += ":1\r\n";
    while (SendAll(fd, items)) {
    }
  };
  EXPECT_THAT(ErrorOf(lists, seconds(60), RedisClient::kReplyBytesMax), HasSubstr("too long"));
  const auto line = [](int fd) {
    while (SendAll(fd, "+more and more")) {
    }
  };
  EXPECT_THAT(ErrorOf(line), HasSubstr("without an end"));
  EXPECT_THAT(ErrorOf([](int fd) { SendAll(fd, "$99999999999999\r\n"); }), HasSubstr("too long"));
  EXPECT_THAT(ErrorOf([](int fd) { SendAll(fd, "$-2\r\n"); }), HasSubstr("too long"));
}

}  // namespace
}  // namespace quire::server
