// The transport under clients that are slow, large or many, and while the server drains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

using testing::RawClient;
using testing::RawResponse;
using testing::TestServer;

constexpr std::string_view kHello = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr std::string_view kExpects =  // busy, once it has read 100
    "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";

// One timeout is short; the others are longer than any test.
TransportLimits Quick(std::chrono::nanoseconds TransportLimits::*timeout) {
  TransportLimits limits;
  limits.*timeout = std::chrono::milliseconds(50);
  return limits;
}

TEST(TransportLimits, LargeHeadersPassAbsurdOnesAre431) {
  TestServer server;
  RawClient client(server.port());
  client.Send(
      fmt::format("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", std::string(60000, 'x')));
  EXPECT_EQ(client.Read().status, 200);
  client.Send(fmt::format("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: {}", std::string(70000, 'x')));
  EXPECT_EQ(client.Read().status, 431);
  EXPECT_TRUE(client.AtEnd());
}

TEST(TransportLimits, TooLargeBodiesAre413AndTheAnswerArrives) {
  TransportLimits limits;
  limits.parser.body_bytes = 1000;
  TestServer server(limits);
  {
    RawClient client(server.port());
    client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
    client.TrySend(std::string(1000000, 'x'));
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 413);
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
  RawClient client(server.port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 11; ++i) client.TrySend("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_EQ(client.Read().status, 413);
  EXPECT_TRUE(client.AtEnd());
}

TEST(TransportLimits, BodiesShareOneBudgetAndGiveItBack) {
  TransportLimits limits;
  limits.buffered_bodies_bytes = 1200;
  TestServer server(limits);
  RawClient first(server.port());
  first.Send("POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 800\r\n\r\n" + std::string(800, 'x'));
  server.WaitEntered();
  const std::string second =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300\r\n\r\n" + std::string(300, 'x');
  {
    RawClient client(server.port());
    client.Send(second);
    EXPECT_EQ(client.Read().status, 503);
  }
  server.Release();
  EXPECT_EQ(first.Read().status, 200);
  // The connection looks for its next request only when it has let go of the last one's body.
  first.Send("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(first.Read().status, 200);
  RawClient client(server.port());
  client.Send(second);
  EXPECT_EQ(client.Read().status, 200);
}

// With its last byte to come a large body is held for the body timeout.
TEST(TransportLimits, LargeBodiesLeaveRoomForSmallOnes) {
  TransportLimits limits;
  limits.buffered_bodies_bytes = 80'000;
  limits.connections = 10;  // bodies of up to 2,000 bytes are small
  TestServer server(limits);
  const auto post = [](size_t announced, size_t sent) {
    return "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(announced) +
           "\r\n\r\n" + std::string(sent, 'x');
  };
  RawClient announces(server.port());
  announces.Send(post(50'000, 0));
  server.OnIoThread([] {});
  RawClient holds(server.port());
  holds.Send(post(60'000, 60'000));
  EXPECT_EQ(holds.Read().status, 200) << "what is only announced takes nothing";
  const auto wait_for = [&](uint64_t bytes) {
    for (uint64_t held = bytes + 1; held != bytes;) {
      server.OnIoThread([&] { held = server.server().buffered_bodies_bytes(); });
    }
  };
  wait_for(0);
  holds.Send(post(60'000, 59'999));
  wait_for(59'999);
  RawClient large(server.port());
  large.Send(post(3000, 3000));
  EXPECT_EQ(large.Read().status, 503);
  for (int i = 0; i < 5; ++i) {
    RawClient client(server.port());
    client.Send(post(2000, 2000));
    EXPECT_EQ(client.Read().status, 200);
  }
  holds.Send("x");
  EXPECT_EQ(holds.Read().status, 200);
}

// One party's large bodies leave others half of the memory; its small ones have room.
TEST(TransportLimits, OnePartysLargeBodiesHaveAShare) {
  TransportLimits limits;
  limits.buffered_bodies_bytes = 80'000;
  limits.parser.body_bytes = 20'000;
  limits.connections = 10;
  TestServer server(limits);
  const auto post = [](size_t announced, size_t sent) {
    return fmt::format("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", announced,
                       std::string(sent, 'x'));
  };
  RawClient holds(server.port());
  holds.Send(post(20'000, 19'999));
  RawClient more(server.port());
  more.Send(post(10'000, 9999));
  for (uint64_t held = 0; held != 29'998;) {
    server.OnIoThread([&] { held = server.server().buffered_bodies_bytes(); });
  }
  RawClient large(server.port());
  large.Send(post(12'503, 12'503));
  const RawResponse refused = large.Read();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  RawClient small(server.port());
  small.Send(post(2000, 2000));
  EXPECT_EQ(small.Read().status, 200);
  holds.Send("x");
  EXPECT_EQ(holds.Read().status, 200);
}

TEST(TransportLimits, SilenceEnds) {
  TestServer server(Quick(&TransportLimits::idle_timeout));
  RawClient silent(server.port());
  EXPECT_TRUE(silent.AtEnd());
}

TEST(TransportLimits, HalfHeadersEnd) {
  TestServer server(Quick(&TransportLimits::header_timeout));
  RawClient half(server.port());
  half.Send("GET /hello HTTP/1.1\r\nHo");
  EXPECT_EQ(half.Read().status, 408);
  EXPECT_TRUE(half.AtEnd());
}

// A byte now and then does not move the deadline of a header. The pause keeps the bytes far below the limit
// of 64 KiB, which would answer 431: a busy machine may take seconds for the 50 ms.
TEST(TransportLimits, DrippedHeadersEnd) {
  TestServer server(Quick(&TransportLimits::header_timeout));
  RawClient client(server.port());
  client.Send("GET /hello HTTP/1.1\r\nX: ");
  std::atomic<bool> answered = false;
  std::jthread drip([&] {
    while (!answered && client.TrySend("x")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_EQ(client.Read().status, 408);
  answered = true;
}

TEST(TransportLimits, SlowBodiesEnd) {
  TestServer server(Quick(&TransportLimits::body_timeout));
  RawClient client(server.port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_TRUE(client.AtEnd());
}

// Bytes that came fast do not pay for a silence behind them: 4 MiB would for four minutes.
TEST(TransportLimits, LargeBodiesWithoutTheirLastByteEnd) {
  TestServer server(Quick(&TransportLimits::body_timeout));
  RawClient client(server.port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194305\r\n\r\n");
  client.TrySend(std::string(4 << 20, 'x'));
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_TRUE(client.AtEnd());
}

// The time that a handler takes for a piece (a slow disk) is not the client's.
TEST(TransportLimits, AHandlersTimeIsNotTheBodys) {
  TransportLimits limits;
  limits.body_timeout = std::chrono::seconds(1);
  TestServer server(limits);
  RawClient client(server.port());
  client.Send("POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabcde");
  server.WaitEntered();
  std::this_thread::sleep_for(limits.body_timeout);
  server.Release();
  client.Send("fghij");
  EXPECT_EQ(client.Read().body, "abcdefghij");
}

// The kernel takes little beyond what it can send, then the handler waits in its one write until the timeout
// ends it.
TEST(TransportLimits, AReaderThatTakesNothingIsBoundedAndEnds) {
  TransportLimits limits;
  limits.write_timeout = std::chrono::milliseconds(200);
  TestServer server(limits);
  RawClient client(server.port());
  client.Send("POST /flood HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(server.WaitCancelled());
  EXPECT_LT(server.flooded_bytes(), uint64_t{1} << 20);  // 4 MiB where the kernel takes all that it can hold
}

TEST(TransportLimits, WaitingConnectionsMakeRoomForNewOnes) {
  TransportLimits limits;
  limits.connections = 4;
  TestServer server(limits);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<RawClient>(server.port()));
    idle.back()->Send("GET /hel");
  }
  server.OnIoThread([] {});
  RawClient client(server.port());
  client.Send(kHello);
  EXPECT_EQ(client.Read().body, "hi");
}

TEST(TransportLimits, BusyConnectionsAreNotPushedOut) {
  TransportLimits limits;
  limits.connections = 1;
  TestServer server(limits);
  RawClient busy(server.port());
  busy.Send("POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  server.WaitEntered();
  RawClient late(server.port());
  late.Send(kHello);
  const std::string refused = late.ReadToEnd();
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused;
  EXPECT_TRUE(refused.ends_with("\r\n\r\ntoo many connections")) << refused;
  EXPECT_EQ(refused.find("Retry-After: 1\r\n"), refused.rfind("Retry-After: ")) << refused;
  EXPECT_NE(refused.find("Retry-After: "), std::string::npos) << refused;
  server.Release();
  EXPECT_EQ(busy.Read().body, "released");
}

// A reserved place is left for a normal one where there is one, at nobody's cost.
TEST(TransportLimits, WhoAsksInAReservedPlaceGetsOneThatIsFree) {
  TransportLimits limits;
  limits.connections = 1;
  TestServer server(limits);
  auto busy = std::make_unique<RawClient>(server.port());
  busy->Send(kExpects);
  EXPECT_EQ(busy->Read(/*head=*/true).status, 100);
  RawClient same(server.port());
  same.Send("GET /hello HTTP/1.1\r\n");
  server.OnIoThread([] {});
  busy.reset();
  for (size_t sessions = 2; sessions > 1;) server.OnIoThread([&] { sessions = server.server().sessions(); });
  same.Send("Host: localhost\r\n\r\n");
  EXPECT_EQ(same.Read().status, 200);
}

// Who has many busy connections gives one to whoever has fewer.
TEST(TransportLimits, OneOfManyBusyConnectionsGivesWay) {
  TransportLimits limits;
  limits.connections = 3;
  TestServer server(limits);
  std::vector<std::unique_ptr<RawClient>> busy;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(std::make_unique<RawClient>(server.port()));
    busy.back()->Send(kExpects);
    EXPECT_EQ(busy.back()->Read(/*head=*/true).status, 100);
  }
  RawClient health(server.port(), "127.0.0.2");
  health.Send("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(health.Read().status, 200);
  EXPECT_TRUE(health.AtEnd()) << "it had a reserved place, and took nobody's";
  RawClient other(server.port(), "127.0.0.2");
  other.Send(kExpects);
  EXPECT_EQ(other.Read(/*head=*/true).status, 100);
  EXPECT_TRUE(busy.back()->AtEnd()) << "the newest";
  RawClient late(server.port());
  late.Send(kHello);
  EXPECT_TRUE(late.ReadToEnd().starts_with("HTTP/1.1 503 "));
  for (size_t i = 0; i < 2; ++i) {
    busy[i]->Send("abc");
    EXPECT_EQ(busy[i]->Read().body, "abc") << i;
  }
  other.Send("abc");
  EXPECT_EQ(other.Read().body, "abc");
}

// A request whose body does not come is none. One whose body comes keeps its place, whatever comes late.
TEST(TransportLimits, ABodyThatDoesNotComeGivesItsPlaceUp) {
  constexpr std::string_view kUpload = "/upload";
  for (const std::string_view path : {std::string_view("/echo"), kUpload}) {
    TransportLimits limits;
    limits.connections = 2;
    limits.body_timeout = std::chrono::hours(1);
    TestServer server(limits);
    const std::string post =
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", path);
    auto silent = std::make_unique<RawClient>(server.port());
    silent->Send(post);
    server.OnIoThread([] {});
    auto steady = std::make_unique<RawClient>(server.port());
    steady->Send(fmt::format("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"));
    size_t sent = 0;
    int status = 503;
    while (status != 200 && sent < 990) {
      steady->Send("x");
      ++sent;
      RawClient late(server.port());
      late.Send(kHello);
      status = late.Read().status;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(status, 200) << path;
    EXPECT_TRUE(silent->AtEnd());
    steady->Send(std::string(1000 - sent, 'x'));
    EXPECT_EQ(steady->Read().body, std::string(1000, 'x'));
    silent.reset();
    steady.reset();
    if (path == kUpload) {  // its handler goes on behind the body's failure
      server.WaitEntered();
      server.Release();
    }
    const std::vector<RequestLog> logs = server.WaitForLogs();
    EXPECT_EQ(std::ranges::count(logs, "replaced", &RequestLog::error), 1) << path;
  }
}

// While every place has a request, health is still answered, also behind connections that say nothing.
TEST(TransportLimits, HealthHasReservedPlaces) {
  TransportLimits limits;
  limits.connections = 1;
  TestServer server(limits);
  RawClient busy(server.port());
  busy.Send("POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  server.WaitEntered();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(std::make_unique<RawClient>(server.port()));
  for (int i = 0; i < 3; ++i) {
    RawClient client(server.port());
    client.Send("GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.Read().body, "hi");
    EXPECT_TRUE(client.AtEnd());
  }
  server.Release();
  EXPECT_EQ(busy.Read().body, "released");
}

// The connection that never sent a request goes before the one between two requests.
TEST(TransportLimits, AConnectionWithoutARequestIsReplacedFirst) {
  TransportLimits limits;
  limits.connections = 2;
  TestServer server(limits);
  RawClient used(server.port());
  used.Send(kHello);
  EXPECT_EQ(used.Read().status, 200);
  RawClient silent(server.port());
  RawClient late(server.port());
  late.Send(kHello);
  EXPECT_EQ(late.Read().status, 200);
  EXPECT_TRUE(silent.AtEnd());
  used.Send(kHello);
  EXPECT_EQ(used.Read().status, 200);
}

// All of a refused upload is taken from a client that reads only then, if the client said how much that is.
TEST(TransportLimits, ARefusalOutlivesTheUpload) {
  TransportLimits limits;
  limits.parser.body_bytes = 1000;
  TestServer server(limits);
  RawClient client(server.port());
  constexpr size_t kPieces = 192;
  const std::string piece(size_t{1} << 20, 'x');
  client.Send(fmt::format("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                          kPieces * piece.size()));
  for (size_t i = 0; i < kPieces; ++i) client.Send(piece);
  EXPECT_EQ(client.Read().status, 413);
  EXPECT_TRUE(client.AtEnd());
}

// A client that never stops sending is cut off.
TEST(TransportLimits, AnUploadWithoutEndIsCutOff) {
  TestServer server;
  RawClient client(server.port());
  client.Send("POST /none HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string piece = "100000\r\n" + std::string(size_t{1} << 20, 'x') + "\r\n";
  size_t pieces = 0;
  while (pieces < 1000 && client.TrySend(piece)) ++pieces;
  EXPECT_GE(pieces, 127U);
  EXPECT_LT(pieces, 1000U);
}

TEST(TransportLimits, AHalfOpenFloodDoesNotKeepAGoodClientOut) {
  TransportLimits limits;
  limits.connections = 50;
  TestServer server(limits);
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(std::make_unique<RawClient>(server.port()));
    flood.back()->TrySend("POST /echo HTTP/1.1\r\nHost: loc");
  }
  RawClient client(server.port());
  client.Send(kHello);
  EXPECT_EQ(client.Read().body, "hi");
  server.OnIoThread([&server] { EXPECT_LE(server.server().sessions(), 60u); });
}

// Accepted one at a time, the last one would wait for everything else that is ready, as many times as others
// wait before it.
TEST(TransportLimits, ConnectionsThatWaitAreAcceptedTogether) {
  constexpr size_t kWaiting = 100;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::promise<void> accepted;
  size_t turns = 0;
  TestServer server;
  std::function<void()> count = [&] {
    ++turns;
    if (server.server().sessions() == kWaiting) return accepted.set_value();
    boost::asio::post(server.executor(), count);
  };
  server.OnIoThread([&] {
    for (size_t i = 0; i < kWaiting; ++i) clients.push_back(std::make_unique<RawClient>(server.port()));
    count();
  });
  accepted.get_future().wait();
  EXPECT_LT(turns, kWaiting / 4);
}

TEST(TransportDrain, RunningRequestsFinishAndConnectionsClose) {
  TestServer server;
  RawClient busy(server.port());
  RawClient idle(server.port());
  idle.Send(kHello);
  EXPECT_EQ(idle.Read().status, 200);
  busy.Send("POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  server.WaitEntered();
  server.OnIoThread([&server] { server.server().StopAccepting(); });

  idle.Send(kHello);  // still answered, then closed
  const RawResponse last = idle.Read();
  EXPECT_EQ(last.status, 200);
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(idle.AtEnd());

  server.Release();
  const RawResponse finished = busy.Read();
  EXPECT_EQ(finished.body, "released");
  EXPECT_EQ(finished.headers.at("connection"), "close");
  EXPECT_TRUE(busy.AtEnd());
}

TEST(TransportDrain, WaitingConnectionsCanBeClosedAlone) {
  TestServer server;
  RawClient busy(server.port());
  RawClient idle(server.port());
  idle.Send(kHello);
  EXPECT_EQ(idle.Read().status, 200);
  busy.Send("POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  server.WaitEntered();
  server.OnIoThread([&server] { server.server().CloseIdle(); });
  EXPECT_TRUE(idle.AtEnd());
  server.Release();
  EXPECT_EQ(busy.Read().body, "released");
}

TEST(TransportLimits, OneBodyOfTheLargestSizeAlwaysFitsAShare) {
  ::quire::server::TransportLimits limits;
  EXPECT_EQ(limits.Bodies().party, limits.buffered_bodies_bytes / 2);
  limits.parser.body_bytes = limits.buffered_bodies_bytes / 4 * 3;
  EXPECT_EQ(limits.Bodies().party, limits.parser.body_bytes);
  limits.parser.body_bytes = limits.buffered_bodies_bytes;
  EXPECT_EQ(limits.Bodies().party, limits.Bodies().large);
}

}  // namespace
}  // namespace quire::server
