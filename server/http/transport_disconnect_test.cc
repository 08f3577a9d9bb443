// A client that goes away is noticed in every phase, and what its handler holds is given back.
#include <gtest/gtest.h>

#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

using testing::RawClient;
using testing::RawResponse;
using testing::TestServer;

constexpr std::string_view kHelloRequest = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string PostTo(std::string_view path) {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
}

enum class End { kClose, kReset };

class Disconnect : public ::testing::TestWithParam<End> {
 protected:
  static void CloseConnection(RawClient& client) {
    switch (GetParam()) {
      case End::kClose:
        client.Close();
        break;
      case End::kReset:
        client.Reset();
        break;
    }
  }
  static void ExpectAlive(TestServer& server) {
    RawClient client(server.port());
    client.Send(kHelloRequest);
    EXPECT_EQ(client.Read().body, "hi");
  }
};

TEST_P(Disconnect, InTheHeader) {
  TestServer server;
  RawClient client(server.port());
  client.Send(kHelloRequest.substr(0, 12));
  CloseConnection(client);
  ExpectAlive(server);
}

TEST_P(Disconnect, InTheBody) {
  TestServer server;
  RawClient client(server.port());
  client.Send("POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  CloseConnection(client);
  ExpectAlive(server);
}

TEST_P(Disconnect, BeforeTheFirstByteOfTheAnswer) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/hold"));
  server.WaitEntered();
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

TEST_P(Disconnect, InTheStream) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/trickle"));
  server.WaitEntered();
  EXPECT_FALSE(client.ReadSome(20).empty());
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

TEST_P(Disconnect, WhileAWriteIsStuck) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/flood"));
  server.WaitEntered();
  EXPECT_FALSE(client.ReadSome(100000).empty());
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

// Here a write that fails is all that tells.
TEST_P(Disconnect, ThatOnlyAWriteSeesIsLogged) {
  TestServer server;
  RawClient client(server.port());
  const std::string lines = std::string(size_t{8} << 20, '\n');
  client.Send("POST /stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(lines.size()) +
              "\r\n\r\n" + lines);
  EXPECT_FALSE(client.ReadSome(20).empty());
  CloseConnection(client);
  const auto logs = server.WaitForLogs();
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_EQ(logs[0].status, 200);
  EXPECT_EQ(logs[0].error, "client gone");
}

TEST_P(Disconnect, WithARequestPipelinedBehind) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/hold") + std::string(kHelloRequest));
  server.WaitEntered();
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

INSTANTIATE_TEST_SUITE_P(Every, Disconnect, ::testing::Values(End::kClose, End::kReset));

// A client that has sent all it will send still reads its answers, also those to requests it sent ahead.
TEST(HalfClose, EveryRequestIsAnswered) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/hold") + std::string(kHelloRequest));
  server.WaitEntered();
  client.FinishSending();
  EXPECT_EQ(client.ReadSome(1), "H");  // the end was seen, and the answer has begun
  server.Release();
  EXPECT_EQ(client.ReadSome(14), "TTP/1.1 200 OK");
  const std::string rest = client.ReadToEnd();
  EXPECT_NE(rest.find("\r\n\r\nreleasedHTTP/1.1 200 OK\r\n"), std::string::npos) << rest;
  EXPECT_TRUE(rest.ends_with("\r\n\r\nhi")) << rest;
}

// The first bytes of the header leave while the reply is compressed.
TEST(HalfClose, ACompressedReplyIsWhole) {
  TestServer server;
  server.DelayCompression();
  RawClient client(server.port());
  client.Send("GET /json?2000 HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
  server.OnIoThread([] {});
  client.FinishSending();
  EXPECT_EQ(client.ReadSome(1), "H");
  server.Release();
  const std::string rest = client.ReadToEnd();
  EXPECT_TRUE(rest.starts_with("TTP/1.1 200 OK\r\n")) << rest.substr(0, 20);
}

TEST(HalfClose, AStreamGoesOn) {
  for (const bool before_the_stream : {true, false}) {
    TestServer server;
    RawClient client(server.port());
    client.Send(PostTo("/trickle"));
    if (before_the_stream) client.FinishSending();
    std::string begin;
    while (!begin.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n")) begin += client.ReadSome(1);
    EXPECT_TRUE(begin.starts_with("HTTP/1.1 200 OK\r\n")) << begin;
    if (!before_the_stream) client.FinishSending();
    EXPECT_EQ(client.ReadSome(1), "0");  // the end was seen: a leading zero of the next chunk's size
    server.Release();
    std::string rest = client.ReadToEnd();
    rest.erase(0, rest.find_first_not_of('0'));  // more of them if this took long
    EXPECT_EQ(rest, "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    EXPECT_FALSE(server.WaitCancelled());
  }
}

// A stream that is silent: its client is known to be gone before the next keep-alive, which does not come
// here.
TEST(HalfClose, AClientThatLeavesASilentStreamIsNoticed) {
  TransportLimits limits;
  limits.keep_alive_interval = std::chrono::hours(1);
  TestServer server(limits);
  RawClient client(server.port());
  client.Send(PostTo("/trickle"));
  server.WaitEntered();
  EXPECT_FALSE(client.ReadSome(20).empty());
  client.Close();
  EXPECT_TRUE(server.WaitCancelled());
}

TEST(HalfClose, AnIncompleteRequestEndsTheConnection) {
  TestServer server;
  for (const char* part :
       {"GET /hel", "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"}) {
    RawClient client(server.port());
    client.Send(part);
    client.FinishSending();
    EXPECT_TRUE(client.AtEnd());
  }
}

// It is still noticed when a client that had finished sending goes away.
TEST(HalfClose, AClientThatLeavesLaterIsNoticed) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/hold"));
  server.WaitEntered();
  client.FinishSending();
  EXPECT_EQ(client.ReadSome(1), "H");
  client.Close();
  EXPECT_TRUE(server.WaitCancelled());
}

// Bytes behind a running request are read only up to a limit; a reset is still noticed.
TEST(DisconnectAfterFlood, ResetBehindUnreadInput) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/hold"));
  server.WaitEntered();
  client.Send(std::string(200000, 'x'));
  server.OnIoThread([] {});
  client.Reset();
  EXPECT_TRUE(server.WaitCancelled());
}

TEST(AbortAll, CancelsRunningHandlers) {
  TestServer server;
  RawClient client(server.port());
  client.Send(PostTo("/hold"));
  server.WaitEntered();
  server.OnIoThread([&server] { server.server().AbortAll(); });
  EXPECT_TRUE(server.WaitCancelled());
  EXPECT_TRUE(client.AtEnd());
}

}  // namespace
}  // namespace quire::server
