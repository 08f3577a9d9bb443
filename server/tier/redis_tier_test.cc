// With a real redis-server; skipped where there is none.
#include "server/tier/redis_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "server/tier/prefix_search.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kServer = "/usr/bin/redis-server";

bool Until(const std::function<bool()>& holds) {
  const auto deadline = steady_clock::now() + seconds(60);
  while (!holds()) {
    if (steady_clock::now() > deadline) return false;
    ::usleep(10'000);
  }
  return true;
}

uint16_t FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ::ntohs(address.sin_port);
}

class RedisTiers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kServer)) GTEST_SKIP() << kServer << " is not installed";
    std::string pattern = (fs::temp_directory_path() / "quire-redis-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::signal(SIGPIPE, SIG_IGN);
    spdlog::set_level(spdlog::level::off);
    Start();
    here_ = Open("here");
    there_ = Open("there");
  }
  void TearDown() override {
    spdlog::set_level(spdlog::level::info);
    Stop();
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  void Start(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {
        kServer,          "--port",        "0",           "--unixsocket", Socket(), "--save", "", "--dir",
        folder_.string(), "--requirepass", "open sesame", "--daemonize",  "no"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ASSERT_EQ(::posix_spawn(&pid_, kServer, &actions, nullptr, arguments.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ASSERT_TRUE(Until([this] {
      RedisClient client(Address());
      return client.Connect(steady_clock::now() + seconds(10)).has_value();
    }));
  }
  void Stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
    fs::remove(Socket());
  }
  std::string Socket() const { return (folder_ / "redis.sock").string(); }
  RedisAddress Address() const { return {.unix_socket = Socket(), .password = "open sesame"}; }

  std::unique_ptr<DiskTier> Open(const char* name) const {
    auto tier = DiskTier::Open({.folder = folder_ / name, .budget_bytes = 1 << 24});
    EXPECT_TRUE(tier.has_value());
    return tier ? *std::move(tier) : nullptr;
  }
  std::unique_ptr<RedisTier> Redis(DiskTier& disk, const char* secret = "cluster",
                                   std::chrono::nanoseconds lookup_time = seconds(60)) const {
    auto tier = std::make_unique<RedisTier>(RedisTier::Options{.address = Address(),
                                                               .secret = HashOf(secret),
                                                               .ttl = seconds(600),
                                                               .lookup_time = lookup_time,
                                                               .connect_time = seconds(20),
                                                               .retry_after = std::chrono::milliseconds(50)},
                                            disk);
    EXPECT_TRUE(Until([&] { return tier->stats().connected; }));
    return tier;
  }
  static PrefixOrigin Origin(bool needs_state = true) {
    return {.model = "m",
            .program = "p",
            .files = "sha256-f",
            .byte_class = "c",
            .isolation = "0:",
            .segment_tokens = 16,
            .needs_state = needs_state};
  }
  static KeyChain ChainOf(const SnapshotKey& root, size_t count) {
    std::vector<int32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 7);
    return {root, std::move(tokens), 16};
  }
  static std::string ContentOf(const PrefixPiece& piece) {
    std::string content(piece.state ? 300'000 : 5000, 'a');
    for (size_t i = 0; i < content.size(); ++i)
      content[i] = static_cast<char>(i * 31 + static_cast<size_t>(piece.to));
    return content;
  }
  // Computed on one machine, and sent.
  static void PutAndSend(DiskTier& disk, RedisTier& redis, const PrefixOrigin& origin, size_t count) {
    const KeyChain chain = ChainOf(disk.RootOf(origin), count);
    const KeyChain remote = chain.WithRoot(redis.RootOf(origin));
    std::vector<RedisTier::Upload> uploads;
    for (const PrefixPiece& piece : chain.Pieces(0, chain.tokens(), origin.needs_state)) {
      const std::string content = ContentOf(piece);
      const StoredSegment segment{
          piece.key, chain.Prefix(piece.begin()), piece.from, piece.to, piece.state, content.size()};
      if (!disk.Has(piece.key)) {
        auto writer = disk.Create(segment, chain.Tokens(piece.from, piece.to),
                                  segment.begins_prefix() ? &origin : nullptr);
        ASSERT_TRUE(writer && writer->Write(content) && writer->Commit());
      }
      uploads.push_back({piece.key, remote.Object(piece.to, piece.state), remote.Prefix(piece.begin()),
                         piece.to, piece.state});
    }
    redis.Send(uploads);
  }
  // The tokens of the longest prefix for a prompt, and whether all of it came with the bytes that were sent.
  static int64_t Restore(DiskTier& disk, RedisTier& redis, const PrefixOrigin& origin, size_t prompt,
                         bool& right) {
    const KeyChain chain = ChainOf(disk.RootOf(origin), prompt);
    const KeyChain remote = chain.WithRoot(redis.RootOf(origin));
    PrefixSearch search(disk, &redis, chain, remote, origin.needs_state);
    const int64_t longest = search.Longest(0, 0);
    right = longest > 0;
    for (const PrefixPiece& piece : chain.Pieces(0, longest, origin.needs_state && longest > 0)) {
      const StoredSegment segment{piece.key, chain.Prefix(piece.begin()), piece.from, piece.to, piece.state,
                                  0};
      if (!disk.Has(piece.key))
        redis.Download(remote.Object(piece.to, piece.state), segment, chain.Tokens(piece.from, piece.to),
                       segment.begins_prefix() ? &origin : nullptr);
      auto reader = disk.OpenSegment(piece.key);
      std::string content(reader ? reader->bytes() : 0, '\0');
      right = right && reader && reader->Read(content) && reader->Verify() && content == ContentOf(piece);
    }
    return longest;
  }

  fs::path folder_;
  pid_t pid_ = 0;
  std::unique_ptr<DiskTier> here_, there_;
};

TEST_F(RedisTiers, APrefixIsRestoredOnAnotherMachine) {
  for (const bool needs_state : {true, false}) {
    auto origin = Origin(needs_state);
    if (!needs_state) origin.files = "sha256-g";
    const auto sender = Redis(*here_);
    const auto receiver = Redis(*there_);
    PutAndSend(*here_, *sender, origin, 40);
    ASSERT_TRUE(Until([&] { return sender->stats().written == (needs_state ? 4u : 3u); }));
    bool right = false;
    EXPECT_EQ(Restore(*there_, *receiver, origin, 100, right), 40);
    EXPECT_TRUE(right);
    EXPECT_EQ(receiver->stats().corrupt, 0u);
    // Now it is on this machine's disk, with its index.
    EXPECT_EQ(there_->Prefixes().front().tokens, 40);
    PutAndSend(*here_, *sender, origin, 40);
    ASSERT_TRUE(Until([&] { return sender->stats().written == (needs_state ? 4u : 3u); }))
        << "nothing is sent twice";
  }
}

// A chat's later turns send its first segments again and again: Redis is asked about each once, until the
// connection ends.
TEST_F(RedisTiers, AsksOnceWhatRedisHas) {
  const auto questions = [this] {
    RedisClient client(Address());
    EXPECT_TRUE(client.Connect(steady_clock::now() + seconds(60)).has_value());
    const std::vector<RedisClient::Command> commands = {{"INFO", "commandstats"}};
    const std::string text = client.Query(commands, steady_clock::now() + seconds(60))->front().text;
    const size_t at = text.find("cmdstat_exists:calls=");
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 21);
  };
  const auto sender = Redis(*here_);
  PutAndSend(*here_, *sender, Origin(false), 160);
  ASSERT_TRUE(Until([&] { return sender->stats().written == 10u; }));
  EXPECT_EQ(questions(), 10);
  for (size_t turn = 1; turn <= 5; ++turn) {
    PutAndSend(*here_, *sender, Origin(false), 160 + 16 * turn);
    ASSERT_TRUE(Until([&] { return sender->stats().written == 10u + turn; }));
  }
  EXPECT_EQ(questions(), 15);
  // One that lost everything is asked again.
  Stop();
  Start();
  EXPECT_TRUE(Until([&] {
    PutAndSend(*here_, *sender, Origin(false), 160 + 16 * 6);
    return sender->stats().written >= 15u + 16u;
  }));
}

// Redis evicts where segments end apart from the segments.
TEST_F(RedisTiers, AnEvictedSetOfEndsComesBack) {
  RedisClient client(Address());
  ASSERT_TRUE(client.Connect(steady_clock::now() + seconds(60)).has_value());
  const auto ask = [&](RedisClient::Command command) {
    const std::vector<RedisClient::Command> commands = {std::move(command)};
    return client.Query(commands, steady_clock::now() + seconds(60))->front();
  };
  const auto sender = Redis(*here_);
  PutAndSend(*here_, *sender, Origin(), 40);
  ASSERT_TRUE(Until([&] { return ask({"KEYS", "quire:s:*"}).items.size() == 4; }));
  for (const RedisReply& name : ask({"KEYS", "quire:e:*"}).items) ask({"DEL", name.text});
  const auto receiver = Redis(*there_);
  bool right = false;
  EXPECT_EQ(Restore(*there_, *receiver, Origin(), 100, right), 0);
  const auto later = Redis(*here_);
  PutAndSend(*here_, *later, Origin(), 40);
  EXPECT_TRUE(Until([&] { return Restore(*there_, *receiver, Origin(), 100, right) == 40; }));
  EXPECT_TRUE(right);
}

TEST_F(RedisTiers, OtherOwnersAndSecretsFindNothing) {
  const auto sender = Redis(*here_);
  PutAndSend(*here_, *sender, Origin(), 40);
  ASSERT_TRUE(Until([&] { return sender->stats().written == 4u; }));
  bool right = false;
  PrefixOrigin other = Origin();
  other.isolation = "1:b";
  EXPECT_EQ(Restore(*there_, *Redis(*there_), other, 100, right), 0);
  EXPECT_EQ(Restore(*there_, *Redis(*there_, "another cluster"), Origin(), 100, right), 0);
}

TEST_F(RedisTiers, PoisonedValuesAreMisses) {
  const auto sender = Redis(*here_);
  const auto receiver = Redis(*there_);
  PutAndSend(*here_, *sender, Origin(), 40);
  ASSERT_TRUE(Until([&] { return sender->stats().written == 4u; }));
  RedisClient client(Address());
  ASSERT_TRUE(client.Connect(steady_clock::now() + seconds(60)).has_value());
  const KeyChain remote = ChainOf(sender->RootOf(Origin()), 40);
  const std::string first = "quire:s:" + HexOf(remote.Object(16, false));
  const std::string state = "quire:s:" + HexOf(remote.Object(40, true));
  const auto ask = [&](RedisClient::Command command) {
    const std::vector<RedisClient::Command> commands = {std::move(command)};
    return client.Query(commands, steady_clock::now() + seconds(60))->front();
  };
  const std::string whole = ask({"GET", state}).text;
  std::string flipped = whole;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  uint64_t corrupt = 0;
  for (const std::string& value :
       {flipped, whole.substr(0, whole.size() - 1), std::string("x"), ask({"GET", first}).text}) {
    ask({"SET", state, value});
    bool right = true;
    Restore(*there_, *receiver, Origin(), 100, right);
    EXPECT_FALSE(right);
    EXPECT_EQ(receiver->stats().corrupt, ++corrupt);
  }
  ask({"SET", state, whole});
  bool right = false;
  Restore(*there_, *receiver, Origin(), 100, right);
  EXPECT_TRUE(right);
}

TEST_F(RedisTiers, ASlowOrDeadRedisIsAMissAndComesBack) {
  const auto redis = Redis(*here_, "cluster", std::chrono::milliseconds(200));
  ::kill(pid_, SIGSTOP);
  EXPECT_FALSE(redis->LookUp({HashOf("a")}, {}).has_value());
  EXPECT_GT(redis->stats().late, 0u);
  ::kill(pid_, SIGCONT);
  Stop();
  EXPECT_FALSE(redis->LookUp({HashOf("a")}, {}).has_value());
  bool right = false;
  EXPECT_EQ(Restore(*there_, *redis, Origin(), 100, right), 0);
  Start();
  EXPECT_TRUE(Until([&] { return redis->LookUp({HashOf("a")}, {}).has_value(); }));
}

TEST_F(RedisTiers, AFullRedisFailsNothing) {
  Stop();
  Start({"--maxmemory", "1mb", "--maxmemory-policy", "noeviction"});
  const auto redis = Redis(*here_);
  PutAndSend(*here_, *redis, Origin(), 160);
  ASSERT_TRUE(Until([&] { return redis->stats().failures > 0; }));
  bool right = false;
  Restore(*there_, *redis, Origin(), 200, right);
  EXPECT_EQ(redis->stats().corrupt, 0u);
}

TEST_F(RedisTiers, AWrongPasswordIsNoConnection) {
  RedisAddress wrong = Address();
  wrong.password = "sesame";
  RedisClient client(wrong);
  const auto connected = client.Connect(steady_clock::now() + seconds(60));
  ASSERT_FALSE(connected.has_value());
  EXPECT_EQ(connected.error().message.find("sesame"), std::string::npos) << connected.error().message;
}

TEST_F(RedisTiers, TlsIsVerified) {
  const std::string make = fmt::format(
      "openssl req -x509 -newkey rsa:2048 -nodes -keyout {0}/key -out {0}/cert -days 2 -subj /CN=redis "
      "-addext subjectAltName=IP:127.0.0.1 2>/dev/null",
      folder_.string());
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "openssl is not installed";
  Stop();
  const uint16_t port = FreePort();
  Start({"--tls-port", std::to_string(port), "--tls-cert-file", folder_ / "cert", "--tls-key-file",
         folder_ / "key", "--tls-ca-cert-file", folder_ / "cert", "--tls-auth-clients", "no", "--bind",
         "127.0.0.1"});
  RedisAddress address{.host = "127.0.0.1", .port = port, .tls = true, .password = "open sesame"};
  RedisClient stranger(address);
  const auto refused = stranger.Connect(steady_clock::now() + seconds(60));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("TLS"), std::string::npos) << refused.error().message;
  address.ca_file = folder_ / "cert";
  RedisClient client(address);
  const auto connected = client.Connect(steady_clock::now() + seconds(60));
  ASSERT_TRUE(connected.has_value()) << connected.error().message;
  const std::string large(3'000'000, 'x');
  const std::vector<RedisClient::Command> commands = {{"SET", "a", large}, {"GET", "a"}, {"GET", "none"}};
  const auto replies = client.Query(commands, steady_clock::now() + seconds(60));
  ASSERT_TRUE(replies.has_value());
  EXPECT_EQ((*replies)[1].text, large);
  EXPECT_EQ((*replies)[2].kind, RedisReply::Kind::kNil);
}

TEST(RedisUrls, NameServerUserAndDatabase) {
  const auto all = ParseRedisUrl("rediss://app:p%40ss@cache.example:6380/3");
  ASSERT_TRUE(all.has_value());
  EXPECT_TRUE(all->tls);
  EXPECT_EQ(all->host, "cache.example");
  EXPECT_EQ(all->port, 6380);
  EXPECT_EQ(all->user, "app");
  EXPECT_EQ(all->password, "p@ss");
  EXPECT_EQ(all->database, 3);
  EXPECT_EQ(ParseRedisUrl("redis://[::1]:7")->host, "::1");
  EXPECT_EQ(ParseRedisUrl("redis://h")->port, 6379);
  EXPECT_EQ(ParseRedisUrl("unix:///run/redis.sock")->unix_socket, "/run/redis.sock");
  for (const char* wrong : {"", "http://h", "redis://", "redis://h:0", "redis://h:x", "redis://h/x",
                            "redis://:%4@h", "unix://a", "redis://[::1"}) {
    const auto parsed = ParseRedisUrl(wrong);
    ASSERT_FALSE(parsed.has_value()) << wrong;
    EXPECT_EQ(parsed.error().code, api::ErrorCode::kInvalidArgument);
  }
}

TEST(CircuitBreakers, OpenAtTheNextFailureWhereOneTryIsAllowed) {
  CircuitBreaker breaker(seconds(5));
  CircuitBreaker::Time now{};
  breaker.AllowOne();
  EXPECT_FALSE(breaker.open());
  for (int failure = 0; failure < 3; ++failure) breaker.Failed(now);
  EXPECT_FALSE(breaker.MayTry(now));
  breaker.AllowOne();
  EXPECT_TRUE(breaker.MayTry(now));
  EXPECT_TRUE(breaker.Failed(now));
  EXPECT_FALSE(breaker.MayTry(now));
}

TEST(CircuitBreakers, OpenAfterThreeFailuresAndTryOnceInAWhile) {
  CircuitBreaker breaker(seconds(5));
  CircuitBreaker::Time now{};
  EXPECT_FALSE(breaker.Failed(now));
  EXPECT_FALSE(breaker.Failed(now));
  EXPECT_TRUE(breaker.MayTry(now));
  EXPECT_TRUE(breaker.Failed(now)) << "it opens once";
  int tries = 0;
  for (int second = 0; second < 60; ++second) {
    now += seconds(1);
    if (!breaker.MayTry(now)) continue;
    ++tries;
    EXPECT_FALSE(breaker.Failed(now));
  }
  EXPECT_EQ(tries, 12);
  EXPECT_TRUE(breaker.Succeeded());
  EXPECT_FALSE(breaker.Succeeded());
  EXPECT_TRUE(breaker.MayTry(now));
}

}  // namespace
}  // namespace quire::server
