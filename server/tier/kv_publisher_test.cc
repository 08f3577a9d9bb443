#include "server/tier/kv_publisher.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "api/base/file_descriptor.h"
#include "server/tier/event_socket.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(KvEvents, AreArraysOfNamesAndFields) {
  const std::string batch = EncodeKvBatch(
      {BlockStored{.hash = UINT64_MAX, .tokens = {1, -2, 70'000}},
       BlockStored{.hash = 5, .parent = UINT64_MAX, .tokens = {3}}, BlockRemoved{7}, AllBlocksCleared{}},
      1234.5);
  const Json expected = Json::parse(R"([1234.5, [
      ["BlockStored", [18446744073709551615], null, [1, -2, 70000], 3, null, "DISK", null],
      ["BlockStored", [5], 18446744073709551615, [3], 1, null, "DISK", null],
      ["BlockRemoved", [7], "DISK"], ["AllBlocksCleared"]], 0])");
  EXPECT_EQ(Json::from_msgpack(batch), expected);
}

TEST(KvEvents, HaveNumbersOfEightBytesAndTopicsOfMachineAndModel) {
  EXPECT_EQ(SequenceFrame(0x0102030405060708), "\x01\x02\x03\x04\x05\x06\x07\x08");
  EXPECT_EQ(SequenceFrame(0), std::string(8, '\0'));
  EXPECT_EQ(KvTopic("node-1", "m:latest"), "kv@node-1@m:latest");
  SnapshotKey key{};
  key[0] = 0x80;
  key[7] = 1;
  key[8] = 9;
  EXPECT_EQ(BlockHash(key), 0x8000000000000001);
}

// What a router does with the events.
class Subscriber {
 public:
  explicit Subscriber(const std::string& endpoint)
      : context_(::zmq_ctx_new()), socket_(::zmq_socket(context_, ZMQ_SUB)) {
    const int linger = 0;
    ::zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof(linger));
    ::zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "kv@", 3);
    EXPECT_EQ(::zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~Subscriber() {
    ::zmq_close(socket_);
    ::zmq_ctx_term(context_);
  }
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;

  template <class Holds>
  bool ReadUntil(Holds holds) {
    const auto deadline = steady_clock::now() + seconds(60);
    while (!holds()) {
      if (steady_clock::now() > deadline) return false;
      zmq_pollitem_t item{socket_, 0, ZMQ_POLLIN, 0};
      if (::zmq_poll(&item, 1, 100) > 0) Read();
    }
    return true;
  }

  std::map<uint64_t, Json> blocks;  // the events that stored them
  std::string topic;
  int cleared = 0;
  bool in_order = true;  // no number is missing, and no block comes before its parent

 private:
  std::string Frame() {
    std::array<char, 65536> bytes;
    const int size = ::zmq_recv(socket_, bytes.data(), bytes.size(), 0);
    return {bytes.data(), static_cast<size_t>(size)};
  }
  void Read() {
    topic = Frame();
    const std::string number = Frame();
    if (!last_.empty()) in_order = in_order && number > last_;
    last_ = number;
    const Json batch = Json::from_msgpack(Frame());
    for (const Json& event : batch[1]) {
      if (event[0] == "AllBlocksCleared") {
        blocks.clear();
        if (++cleared == 1) in_order = true;  // it may have come in the middle
      } else if (event[0] == "BlockRemoved") {
        blocks.erase(event[1][0].get<uint64_t>());
      } else {
        in_order = in_order && (event[2].is_null() || blocks.contains(event[2].get<uint64_t>()));
        blocks[event[1][0].get<uint64_t>()] = event;
      }
    }
  }

  void* const context_;
  void* const socket_;
  std::string last_;
};

// A subscriber states what it will send: the connection ends before any of it.
TEST(EventSockets, ATopicIsShort) {
  const auto socket = EventSocket::Bind("tcp://127.0.0.1:*");
  if (!socket) GTEST_SKIP() << socket.error().message;
  const std::string endpoint = (*socket)->endpoint();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoul(endpoint.substr(endpoint.rfind(':') + 1))));
  const api::FileDescriptor peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const auto send = [&](const std::string& bytes) {
    EXPECT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  };
  std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
  greeting.resize(64);
  send(greeting);
  std::array<char, 256> bytes;
  ASSERT_EQ(::recv(peer.get(), bytes.data(), 92, MSG_WAITALL), 92) << "its greeting and READY";
  const std::string ready("\x05READY\x0bSocket-Type\0\0\0\x03SUB", 25);
  send(std::string("\x04") + static_cast<char>(ready.size()) + ready);
  send(std::string("\0\x04\x01kv@", 6));
  const auto deadline = steady_clock::now() + seconds(60);
  bool subscribed = false;
  while (!subscribed && steady_clock::now() < deadline) {
    (*socket)->Wait(-1, std::chrono::milliseconds(10));
    subscribed = (*socket)->PopSubscriptions();
  }
  ASSERT_TRUE(subscribed);
  send(std::string("\x02\0\0\0\0\x40\0\0\0\x01", 10));  // a frame of 1 GiB
  ssize_t n = 1;
  while (n > 0) n = ::recv(peer.get(), bytes.data(), bytes.size(), 0);
  EXPECT_TRUE(n == 0 || errno == ECONNRESET);
}

class KvPublishers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "quire-kv-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    spdlog::set_level(spdlog::level::off);
    Open();
  }
  void TearDown() override {
    publisher_.reset();
    spdlog::set_level(spdlog::level::info);
    fs::remove_all(folder_);
  }
  void Open() {
    const auto changes = std::make_shared<SegmentChanges>();
    auto tier = DiskTier::Open(
        {.folder = folder_ / "prefixes",
         .budget_bytes = 1 << 24,
         .on_change = [changes](const SnapshotKey& key, bool stored) { changes->Add(key, stored); }});
    ASSERT_TRUE(tier.has_value());
    tier_ = *std::move(tier);
    publisher_ = std::make_unique<KvPublisher>(
        KvPublisher::Options{.endpoint = Endpoint(), .machine = "here"}, changes, tier_);
  }
  std::string Endpoint() const { return "ipc://" + (folder_ / "events").string(); }
  static std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 7);
    return tokens;
  }
  // Three whole segments of 16 tokens, a part of one, and a state.
  void Store() {
    const PrefixOrigin origin{.model = "m:latest", .segment_tokens = 16, .needs_state = true};
    const KeyChain chain(tier_->RootOf(origin), Tokens(56), 16);
    for (const PrefixPiece& piece : chain.Pieces(0, 56, true)) {
      const StoredSegment segment{piece.key, chain.Prefix(piece.begin()), piece.from, piece.to, piece.state,
                                  3};
      auto writer = tier_->Create(segment, chain.Tokens(piece.from, piece.to),
                                  segment.begins_prefix() ? &origin : nullptr);
      ASSERT_TRUE(writer && writer->Write(std::string("abc")) && writer->Commit());
    }
  }
  static void ExpectChain(const Subscriber& subscriber) {
    EXPECT_TRUE(subscriber.in_order);
    EXPECT_EQ(subscriber.topic, "kv@here@m:latest");
    std::vector<int32_t> tokens;
    Json parent;
    for (int i = 0; i < 3; ++i) {
      for (const auto& [hash, event] : subscriber.blocks) {
        if (event[2] != parent) continue;
        EXPECT_EQ(event[4], 16);
        for (const Json& token : event[3]) tokens.push_back(token.get<int32_t>());
        parent = hash;
        break;
      }
    }
    EXPECT_EQ(tokens, Tokens(48));
  }

  fs::path folder_;
  std::shared_ptr<DiskTier> tier_;
  std::unique_ptr<KvPublisher> publisher_;
};

TEST_F(KvPublishers, ASubscriberKnowsWhatComesAndGoes) {
  Subscriber subscriber(Endpoint());
  Store();
  ASSERT_TRUE(subscriber.ReadUntil([&] { return subscriber.blocks.size() == 3; }));
  ExpectChain(subscriber);
  tier_->PruneAll();
  EXPECT_TRUE(subscriber.ReadUntil([&] { return subscriber.blocks.empty(); }));
  EXPECT_TRUE(subscriber.in_order);
  const KvStats stats = publisher_->stats();
  EXPECT_TRUE(stats.bound);
  EXPECT_GE(stats.stored, 3) << "and once more if the subscription came behind them";
  EXPECT_EQ(stats.removed, 3);
  EXPECT_GE(stats.messages, 2);
}

// One that comes late, and after a restart of the daemon, too.
TEST_F(KvPublishers, ALateSubscriberGetsAllBlocks) {
  Store();
  Subscriber first(Endpoint());
  ASSERT_TRUE(first.ReadUntil([&] { return first.blocks.size() == 3 && first.cleared > 0; }));
  Subscriber second(Endpoint());
  ASSERT_TRUE(second.ReadUntil([&] { return second.blocks.size() == 3; }));
  ExpectChain(second);
  EXPECT_EQ(publisher_->stats().refreshes, 2);
  EXPECT_EQ(publisher_->stats().cleared, 2);
  publisher_.reset();
  Open();
  Subscriber third(Endpoint());
  ASSERT_TRUE(third.ReadUntil([&] { return third.blocks.size() == 3; }));
  ExpectChain(third);
}

TEST(EventSockets, AnAddressThatCannotBeUsedIsAnError) {
  const auto made = EventSocket::Bind("tcp://nowhere");
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, api::ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace quire::server
