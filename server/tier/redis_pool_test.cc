// With a server that holds its answers back, which a real one cannot be made to do.
#include "server/tier/redis_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/base/file_descriptor.h"
#include "server/tier/redis_tier.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using std::chrono::steady_clock;

bool WaitUntil(const std::function<bool()>& holds) {
  const auto deadline = steady_clock::now() + seconds(60);
  while (!holds()) {
    if (steady_clock::now() > deadline) return false;
    ::usleep(1000);
  }
  return true;
}

// Speaks as much of the protocol as the tier's questions need. It has nothing, and answers what it is asked
// with `silent` or `holds_values` once they are false again.
class FakeRedis {
 public:
  explicit FakeRedis(const fs::path& path)
      : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), thread_([this] { Run(); }) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.native().copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    listening_ = true;
  }
  ~FakeRedis() {
    stopping_ = true;
    thread_.join();
  }

  std::atomic<bool> silent = false;        // no question is answered but PING
  std::atomic<bool> holds_values = false;  // no GET is answered
  std::atomic<int> values = 0;             // GETs that came
  std::atomic<int64_t> states = 0;         // the size of each value

 private:
  struct Client {
    api::FileDescriptor fd;
    std::string input = {};
    bool waits_for_value = false;
  };
  // How often the word is in the input, from which it is removed.
  static size_t RemoveWord(std::string& input, std::string_view word) {
    size_t count = 0;
    const std::string wanted = "\r\n" + std::string(word) + "\r\n";
    for (size_t at = input.find(wanted); at != std::string::npos; at = input.find(wanted, at)) {
      input.erase(at, wanted.size());
      ++count;
    }
    return count;
  }
  void Answer(Client& client) {
    std::string out;
    for (size_t i = RemoveWord(client.input, "PING"); i > 0; --i) out += "+PONG\r\n";
    if (!silent) {
      for (size_t i = RemoveWord(client.input, "STRLEN"); i > 0; --i)
        out += fmt::format(":{}\r\n", states.load());
      for (size_t i = RemoveWord(client.input, "SMEMBERS"); i > 0; --i) out += "*0\r\n";
    }
    if (RemoveWord(client.input, "GET") > 0) {
      ++values;
      client.waits_for_value = true;
    }
    if (client.waits_for_value && !holds_values) {
      out += "$-1\r\n";
      client.waits_for_value = false;
    }
    if (!out.empty() && ::send(client.fd.get(), out.data(), out.size(), MSG_NOSIGNAL) < 0) client.fd.Reset();
  }
  void Run() {
    WaitUntil([this] { return listening_.load(); });
    std::vector<Client> clients;
    while (!stopping_) {
      pollfd polled{listener_.get(), POLLIN, 0};
      if (::poll(&polled, 1, 1) > 0)
        clients.push_back({api::FileDescriptor(::accept(listener_.get(), nullptr, nullptr))});
      for (Client& client : clients) {
        std::array<char, 4096> bytes;
        const ssize_t n = ::recv(client.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n > 0) client.input.append(bytes.data(), static_cast<size_t>(n));
        if (n == 0) client.fd.Reset();
        if (client.fd.valid()) Answer(client);
      }
      std::erase_if(clients, [](const Client& client) { return !client.fd.valid(); });
    }
  }

  api::FileDescriptor listener_;
  std::atomic<bool> listening_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // last
};

class RedisPools : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "quire-redis-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    spdlog::set_level(spdlog::level::off);
    redis_ = std::make_unique<FakeRedis>(folder_ / "sock");
    auto disk = DiskTier::Open({.folder = folder_ / "disk", .budget_bytes = 1 << 24});
    ASSERT_TRUE(disk.has_value());
    disk_ = *std::move(disk);
  }
  void TearDown() override {
    spdlog::set_level(spdlog::level::info);
    fs::remove_all(folder_);
  }
  RedisTier::Options Options() const {
    return {.address = {.unix_socket = folder_ / "sock"},
            .secret = HashOf("cluster"),
            .lookup_time = seconds(60),
            .connect_time = seconds(20),
            .transfer_time = seconds(120)};
  }
  static bool Answers(RedisTier& tier) { return tier.LookUp({HashOf("a")}, {HashOf("b")}).has_value(); }

  fs::path folder_;
  std::unique_ptr<FakeRedis> redis_;
  std::unique_ptr<DiskTier> disk_;
};

// Two runners have one tier: the first fetches a long value, the second asks.
TEST_F(RedisPools, AQuestionDoesNotWaitForAnothersTransfer) {
  RedisTier tier(Options(), *disk_);
  ASSERT_TRUE(WaitUntil([&] { return Answers(tier); }));
  redis_->holds_values = true;
  std::thread transfer([&] { EXPECT_FALSE(tier.Download(HashOf("c"), {}, {}, nullptr)); });
  ASSERT_TRUE(WaitUntil([&] { return redis_->values > 0; }));
  EXPECT_TRUE(WaitUntil([&] { return Answers(tier); }));
  EXPECT_TRUE(redis_->holds_values);
  redis_->holds_values = false;
  transfer.join();
}

// After three answers in a row that came too late nobody asks, and waits, any more, until a later one comes
// in time.
TEST_F(RedisPools, AServerThatAnswersTooLateIsLeftAlone) {
  auto options = Options();
  options.lookup_time = std::chrono::milliseconds(1);
  options.retry_after = std::chrono::hours(1);
  RedisTier tier(options, *disk_);
  redis_->silent = true;
  ASSERT_TRUE(WaitUntil([&] {
    EXPECT_FALSE(Answers(tier));
    return tier.stats().late == CircuitBreaker::kFailures;
  }));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Answers(tier));
  EXPECT_EQ(tier.stats().late, static_cast<uint64_t>(CircuitBreaker::kFailures));
}

TEST_F(RedisPools, StatedSizesAreClamped) {
  RedisTier tier(Options(), *disk_);
  ASSERT_TRUE(WaitUntil([&] { return Answers(tier); }));
  for (const int64_t states : {int64_t{-5}, int64_t{7}, INT64_MAX}) {
    redis_->states = states;
    const auto answer = tier.LookUp({HashOf("a"), HashOf("b")}, {});
    ASSERT_TRUE(answer);
    const uint64_t expected =
        states < 0 ? 0 : std::min<uint64_t>(static_cast<uint64_t>(states), RedisClient::kValueBytesMax);
    EXPECT_EQ(answer->bytes, (std::vector<uint64_t>{expected, expected}));
  }
}

// The time for an answer grows with the tokens that it can save.
TEST_F(RedisPools, ALongPromptWaitsLongerForAnAnswer) {
  auto options = Options();
  options.lookup_time = std::chrono::nanoseconds(1);
  RedisTier tier(options, *disk_);
  const std::vector<SnapshotKey> segment = {HashOf("a")}, parent = {HashOf("b")};
  ASSERT_TRUE(WaitUntil([&] { return tier.stats().connected; }));
  EXPECT_FALSE(tier.LookUp(segment, parent).has_value());
  EXPECT_EQ(tier.stats().late, 1u);
  constexpr int64_t kTokens = 6'000'000;  // a minute
  EXPECT_TRUE(WaitUntil([&] { return tier.LookUp(segment, parent, kTokens).has_value(); }));
  EXPECT_EQ(tier.stats().late, 1u);
}

TEST_F(RedisPools, AConnectionThatTheServerClosedIsNotHandedOut) {
  RedisTier tier(Options(), *disk_);
  ASSERT_TRUE(WaitUntil([&] { return Answers(tier); }));
  redis_.reset();
  fs::remove(folder_ / "sock");
  EXPECT_FALSE(Answers(tier));
  EXPECT_EQ(tier.stats().late, 0u);
  redis_ = std::make_unique<FakeRedis>(folder_ / "sock");
  EXPECT_TRUE(WaitUntil([&] { return Answers(tier); }));
}

}  // namespace
}  // namespace quire::server
