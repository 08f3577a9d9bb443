// A client that goes away is noticed in every phase, and what its handler holds is given back.
#include <gtest/gtest.h>

#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

using testing::RawClient;
using testing::TestServer;

constexpr std::string_view kHello = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string Post(std::string_view path) {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
}

enum class End { kClose, kReset, kHalfClose };

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
      case End::kHalfClose:
        client.FinishSending();
        break;
    }
  }
  static void ExpectAlive(TestServer& server) {
    RawClient client(server.port());
    client.Send(kHello);
    EXPECT_EQ(client.Read().body, "hi");
  }
};

TEST_P(Disconnect, InTheHeader) {
  TestServer server;
  RawClient client(server.port());
  client.Send(kHello.substr(0, 12));
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
  client.Send(Post("/hold"));
  server.WaitEntered();
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

TEST_P(Disconnect, InTheStream) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/trickle"));
  server.WaitEntered();
  EXPECT_FALSE(client.ReadSome(20).empty());
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

TEST_P(Disconnect, WhileAWriteIsStuck) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/flood"));
  server.WaitEntered();
  EXPECT_FALSE(client.ReadSome(100000).empty());
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

TEST_P(Disconnect, WithARequestPipelinedBehind) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/hold") + std::string(kHello));
  server.WaitEntered();
  CloseConnection(client);
  EXPECT_TRUE(server.WaitCancelled());
  ExpectAlive(server);
}

INSTANTIATE_TEST_SUITE_P(Every, Disconnect, ::testing::Values(End::kClose, End::kReset, End::kHalfClose));

// Bytes behind a running request are read only up to a limit; a reset is still noticed.
TEST(DisconnectAfterFlood, ResetBehindUnreadInput) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/hold"));
  server.WaitEntered();
  client.Send(std::string(200000, 'x'));
  server.OnIoThread([] {});
  client.Reset();
  EXPECT_TRUE(server.WaitCancelled());
}

TEST(AbortAll, CancelsRunningHandlers) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/hold"));
  server.WaitEntered();
  server.OnIoThread([&server] { server.server().AbortAll(); });
  EXPECT_TRUE(server.WaitCancelled());
  EXPECT_TRUE(client.AtEnd());
}

}  // namespace
}  // namespace quire::server
