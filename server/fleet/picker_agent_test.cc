#include "server/fleet/picker_agent.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <thread>

#include "server/fleet/spop.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;

TEST(FleetNodes, AreNamedHostsWithPorts) {
  EXPECT_EQ(ParseFleetNode("a=10.0.0.1:1234")->port, 1234);
  EXPECT_EQ(ParseFleetNode("a=node.example")->port, 11434);
  EXPECT_EQ(ParseFleetNode("a=[::1]:80")->host, "::1");
  EXPECT_FALSE(ParseFleetNode("a=node.example")->tls);
  EXPECT_TRUE(ParseFleetNode("a=https://node.example")->tls);
  EXPECT_EQ(ParseFleetNode("a=https://node.example")->port, 443);
  EXPECT_EQ(ParseFleetNode("a=https://[::1]:11443")->port, 11443);
  for (const char* text : {"", "a", "=b", "a=", "a=b:", "a=b:0", "a=b:70000", "a=b:x", "a=b:1x", "a b=c",
                           "a=http://b", "a=https://", "a=[::1"})
    EXPECT_FALSE(ParseFleetNode(text).has_value()) << text;
  EXPECT_EQ(ParseFleetNodes({"a=b", "a=c"}).error().message, "two nodes are named a");
  EXPECT_FALSE(ParseFleetNodes({}).has_value());
}

class PickerAgentTest : public ::testing::Test {
 protected:
  PickerAgentTest() : agent_({.listen_port = 0, .nodes = {{.name = "one", .host = "127.0.0.1", .port = 1}}}) {
    port_ = *agent_.Listen();
    thread_ = std::thread([this] { agent_.Run(); });
    socket_.connect({asio::ip::make_address("127.0.0.1"), port_});
  }
  ~PickerAgentTest() override {
    agent_.Stop();
    thread_.join();
  }

  void Send(std::string_view frame) {
    const auto size = static_cast<uint32_t>(frame.size());
    const char length[] = {static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                           static_cast<char>(size >> 8), static_cast<char>(size)};
    asio::write(socket_, asio::buffer(length));
    asio::write(socket_, asio::buffer(frame.data(), frame.size()));
  }

  // The type of the next frame; 0: the connection has ended.
  int Read() {
    std::string bytes(spop::kLengthBytes, '\0');
    boost::system::error_code error;
    asio::read(socket_, asio::buffer(bytes), error);
    if (error) return 0;
    bytes.resize(spop::ParseLength(bytes));
    asio::read(socket_, asio::buffer(bytes));
    return static_cast<int>(spop::ParseFrame(bytes)->type);
  }

  PickerAgent agent_;
  uint16_t port_ = 0;
  std::thread thread_;
  asio::io_context io_;
  asio::ip::tcp::socket socket_{io_};
};

constexpr std::string_view kHelloFrame(
    "\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x03"
    "2.0",
    31);

TEST_F(PickerAgentTest, AnswersMessagesAlsoThoseThatItCannotRead) {
  Send(kHelloFrame);
  EXPECT_EQ(Read(), static_cast<int>(spop::FrameType::kAgentHello));
  for (int i = 0; i < 3; ++i) {
    Send(
        std::string_view("\x03\x00\x00\x00\x01\x01\x01\x04pick\x01\x04"
                         "body\x08\x01x",
                         21));
    EXPECT_EQ(Read(), static_cast<int>(spop::FrameType::kAck));
  }
  Send(std::string_view("\x03\x00\x00\x00\x01\x01\x01\x04pick\x01\x7f", 13));
  EXPECT_EQ(Read(), static_cast<int>(spop::FrameType::kAck));
}

TEST_F(PickerAgentTest, EndsConnectionsThatSendNoFrames) {
  Send("no frame");
  EXPECT_EQ(Read(), static_cast<int>(spop::FrameType::kAgentDisconnect));
  EXPECT_EQ(Read(), 0);
}

TEST_F(PickerAgentTest, EndsConnectionsWithFramesThatAreTooLong) {
  asio::write(socket_, asio::buffer("\xff\xff\xff\xff", 4));
  EXPECT_EQ(Read(), 0);
}

}  // namespace
}  // namespace quire::server
