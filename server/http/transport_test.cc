// The transport over real sockets: framing, order, methods, redirects, checks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/http/content_encoding.h"
#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

using testing::RawClient;
using testing::RawResponse;
using testing::TestServer;

std::string Get(std::string_view path, std::string_view more = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, more);
}

std::string Post(std::string_view path, std::string_view body, std::string_view more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path,
                     body.size(), more, body);
}

TEST(Transport, AnswersAndKeepsTheConnection) {
  TestServer server;
  RawClient client(server.port());
  std::string last_id;
  for (int i = 0; i < 3; ++i) {
    client.Send(Get("/hello"));
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.version, "HTTP/1.1");
    EXPECT_EQ(response.body, "hi");
    EXPECT_EQ(response.headers.at("content-type"), "text/plain");
    EXPECT_TRUE(response.headers.contains("date"));
    EXPECT_FALSE(response.headers.contains("connection"));
    EXPECT_NE(response.headers.at("x-request-id"), last_id);
    last_id = response.headers.at("x-request-id");
  }
}

// What a gzip body decodes to.
std::string Decoded(const std::string& body) {
  BodyDecoder decoder(ContentEncoding::kGzip, body, uint64_t{1} << 24);
  const auto done = decoder.Step(size_t{1} << 25);
  EXPECT_TRUE(done && *done);
  return decoder.MoveDecoded();
}

TEST(Transport, EncodesJsonForClientsThatTakeIt) {
  TestServer server;
  RawClient client(server.port());
  for (const size_t bytes : {size_t{1023}, size_t{1024}, size_t{65'536}, size_t{65'537}, size_t{1'000'000}}) {
    const std::string path = fmt::format("/json?{}", bytes);
    client.Send(Get(path));
    const RawResponse plain = client.Read();
    EXPECT_EQ(plain.body.size(), bytes);
    EXPECT_FALSE(plain.headers.contains("content-encoding"));
    EXPECT_EQ(plain.headers.contains("vary"), bytes >= 1024);
    client.Send(Get(path, "Accept-Encoding: br, GZIP;q=0.5\r\n"));
    const RawResponse encoded = client.Read();
    ASSERT_TRUE(encoded.whole);
    ASSERT_EQ(encoded.headers.contains("content-encoding"), bytes >= 1024) << bytes;
    if (bytes < 1024) continue;
    EXPECT_EQ(encoded.chunked, bytes > 65'536);
    EXPECT_LT(encoded.body.size(), bytes);
    EXPECT_EQ(Decoded(encoded.body), plain.body);
  }
}

TEST(Transport, LeavesOtherRepliesAsTheyAre) {
  TestServer server;
  const std::string gzip = "Accept-Encoding: gzip\r\n";
  RawClient client(server.port());
  client.Send(Get("/json?2000", "Accept-Encoding: gzip;q=0, *\r\n"));
  EXPECT_EQ(client.Read().body.size(), 2000U);
  client.Send(Post("/echo", std::string(2000, 'a'), gzip));
  EXPECT_EQ(client.Read().body, std::string(2000, 'a')) << "text";
  client.Send(Post("/stream", std::string(2000, 'a'), gzip));
  EXPECT_EQ(client.Read().body, std::string(2000, 'a'));
  for (const size_t bytes : {2000, 100'000}) {
    client.Send("HEAD" + Get(fmt::format("/json?{}", bytes), gzip).substr(3));
    const RawResponse head = client.Read(/*head=*/true);
    EXPECT_EQ(head.headers.at("content-encoding"), "gzip");
    EXPECT_EQ(head.headers.contains("content-length"), bytes == 2000);
    EXPECT_EQ(head.body, "");
  }
  RawClient old(server.port());
  old.Send("GET /json?2000 HTTP/1.0\r\nHost: localhost\r\n" + gzip + "\r\n");
  EXPECT_EQ(old.Read().body.size(), 2000U);
}

TEST(Transport, ReadsARequestSplitAtEveryByte) {
  TestServer server;
  RawClient client(server.port());
  const std::string request = Post("/echo", "{\"a\":\"\xC3\xA9\"}", "Content-Type: text/plain\r\n");
  for (size_t cut = 1; cut < request.size(); ++cut) {
    client.Send(request.substr(0, cut));
    server.OnIoThread([] {});  // the first part is likely read alone
    client.Send(request.substr(cut));
    ASSERT_EQ(client.Read().body, "{\"a\":\"\xC3\xA9\"}") << cut;
  }
}

TEST(Transport, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  RawClient client(server.port());
  std::string all;
  for (int i = 0; i < 20; ++i)
    all += i % 3 == 0 ? Post("/stream", fmt::format("a{}\nb\n", i)) : Post("/echo", fmt::format("{}", i));
  client.Send(all);
  for (int i = 0; i < 20; ++i) {
    const RawResponse response = client.Read();
    ASSERT_TRUE(response.whole);
    EXPECT_EQ(response.body, i % 3 == 0 ? fmt::format("a{}\nb\n", i) : fmt::format("{}", i));
  }
}

TEST(Transport, KeepsRequestsThatArriveWhileAHandlerWaits) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/hold", "") + Post("/echo", "first"));
  server.WaitEntered();
  client.Send(Post("/echo", "second").substr(0, 10));
  server.OnIoThread([] {});
  client.Send(Post("/echo", "second").substr(10));
  server.OnIoThread([] {});
  server.Release();
  EXPECT_EQ(client.Read().body, "released");
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "second");
  EXPECT_FALSE(server.WaitCancelled());
}

TEST(Transport, ReadsChunkedBodies) {
  TestServer server;
  RawClient client(server.port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  server.OnIoThread([] {});
  client.Send("4\r\ndefg\r\n0\r\n\r\n" + Get("/hello"));
  EXPECT_EQ(client.Read().body, "abcdefg");
  EXPECT_EQ(client.Read().body, "hi");
}

TEST(Transport, StreamsChunksAndTheConnectionIsUsableAtOnce) {
  TestServer server;
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.Send(Post("/stream", "{\"a\":1}\n{\"b\":2}\n"));
    const RawResponse response = client.Read();
    EXPECT_TRUE(response.chunked && response.whole);
    EXPECT_EQ(response.body, "{\"a\":1}\n{\"b\":2}\n");
    EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
    EXPECT_FALSE(response.headers.contains("content-length"));
  }
}

TEST(Transport, StreamChunksAreSentAtOnceAndKeepAlivesFollow) {
  TransportLimits limits;
  limits.keep_alive_interval = std::chrono::milliseconds(20);
  TestServer server(limits);
  RawClient client(server.port());
  client.Send(Post("/trickle", ""));
  server.WaitEntered();
  std::string seen;
  while (seen.find("data: 1\n\n") == std::string::npos) seen += client.ReadSome(1);
  while (seen.find(": still here\n\n") == std::string::npos) seen += client.ReadSome(1);
  server.Release();
  while (seen.find("data: 2\n\n") == std::string::npos) seen += client.ReadSome(1);
  while (!seen.ends_with("\r\n0\r\n\r\n")) seen += client.ReadSome(1);
  EXPECT_FALSE(server.WaitCancelled());
  client.Send(Get("/hello"));
  EXPECT_EQ(client.Read().body, "hi");
}

TEST(Transport, SpeaksHttp10WithoutChunksAndCloses) {
  TestServer server;
  {
    RawClient client(server.port());
    client.Send("POST /stream HTTP/1.0\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\na\nb\n");
    const RawResponse response = client.Read();
    EXPECT_EQ(response.version, "HTTP/1.0");
    EXPECT_FALSE(response.chunked);
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_EQ(response.body, "a\nb\n");
    EXPECT_TRUE(client.AtEnd());
  }
  RawClient client(server.port());
  client.Send("GET /hello HTTP/1.0\r\n\r\n");
  client.FinishSending();
  EXPECT_EQ(client.Read().body, "hi");
  EXPECT_TRUE(client.AtEnd());
}

TEST(Transport, ClosesWhenAsked) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Get("/hello", "Connection: close\r\n"));
  const RawResponse response = client.Read();
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST(Transport, SendsContinueBeforeTheBody) {
  TestServer server;
  RawClient client(server.port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send("hello" + Get("/hello"));
  EXPECT_EQ(client.Read().body, "hello");
  EXPECT_EQ(client.Read().body, "hi");
}

TEST(Transport, RefusesWithoutContinueAndCloses) {
  TestServer server;
  for (const std::string start :
       {"POST /none HTTP/1.1\r\nHost: localhost\r\n", "PUT /echo HTTP/1.1\r\nHost: localhost\r\n",
        "POST /echo HTTP/1.1\r\nHost: evil.example\r\n"}) {
    RawClient client(server.port());
    client.Send(start + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    const RawResponse response = client.Read();
    EXPECT_GE(response.status, 400) << start;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST(Transport, ARefusedSmallBodyDoesNotCostTheConnection) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/none", "GET /hello HTTP/1.1\r\n\r\n") + Get("/hello"));
  EXPECT_EQ(client.Read().status, 404);
  EXPECT_EQ(client.Read().body, "hi");
}

TEST(Transport, HeadIsGetWithoutABody) {
  TestServer server;
  RawClient client(server.port());
  client.Send("HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n" + Get("/hello"));
  const RawResponse head = client.Read(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "2");
  EXPECT_EQ(client.Read().body, "hi");
  client.Send("HEAD /none HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read(true).status, 404);
  EXPECT_EQ(client.Read(true).status, 405);
}

TEST(Transport, UnknownPathsMethodsAndOptions) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Get("/none"));
  EXPECT_EQ(client.Read().status, 404);
  client.Send("DELETE /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawResponse wrong = client.Read();
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "GET, HEAD, OPTIONS");
  client.Send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawResponse options = client.Read();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "POST, OPTIONS");
  client.Send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().status, 204);
}

TEST(Transport, RedirectsATrailingSlashAndDecodesPaths) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Get("/hello/?a=%20b"));
  const RawResponse redirect = client.Read();
  EXPECT_EQ(redirect.status, 307);
  EXPECT_EQ(redirect.headers.at("location"), "/hello?a=%20b");
  client.Send(Get("/models/library%2Fa%3Ab"));
  EXPECT_EQ(client.Read().body, "/models/library/a:b");
  client.Send(Get("/models/%0d%0aSet-Cookie:x"));
  EXPECT_EQ(client.Read().status, 400);
}

TEST(Transport, ForeignHostsAndOriginsGetOneSentenceOnEveryMethod) {
  TestServer server({}, {"https://ui.example"});
  for (const std::string& request :
       {std::string("GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        std::string("GET http://evil.example/hello HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        Get("/hello", "Origin: https://evil.example\r\n"), Get("/hello", "Origin: null\r\n"),
        Post("/echo", "x", "Origin: https://evil.example\r\nContent-Type: text/plain\r\n"),
        std::string("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
                    "Access-Control-Request-Method: POST\r\n\r\n")}) {
    RawClient client(server.port());
    client.Send(request);
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 403) << request;
    EXPECT_TRUE(response.whole) << request;
    EXPECT_EQ(response.body, R"({"error":"host or origin not allowed; see OLLAMA_ORIGINS"})") << request;
    EXPECT_FALSE(response.headers.contains("access-control-allow-origin"));
  }
}

TEST(Transport, AllowedOriginsAreEchoed) {
  TestServer server({}, {"https://ui.example"});
  RawClient client(server.port());
  client.Send(Get("/hello", "Origin: https://ui.example\r\n"));
  const RawResponse simple = client.Read();
  EXPECT_EQ(simple.status, 200);
  EXPECT_EQ(simple.headers.at("access-control-allow-origin"), "https://ui.example");
  EXPECT_EQ(simple.headers.at("vary"), "Origin");
  client.Send(
      "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n");
  const RawResponse preflight = client.Read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://localhost:3000");
  EXPECT_EQ(preflight.headers.at("access-control-max-age"), "43200");
  client.Send(Get("/none", "Origin: http://localhost:3000\r\n"));
  EXPECT_EQ(client.Read().headers.at("access-control-allow-origin"), "http://localhost:3000");
}

TEST(Transport, ABrokenHandlerIsA500AndTheServerLives) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/throw", "") + Post("/silent", "") + Get("/hello"));
  EXPECT_EQ(client.Read().status, 500);
  EXPECT_EQ(client.Read().status, 500);
  EXPECT_EQ(client.Read().body, "hi");
}

TEST(Transport, AFailingAllocationEndsItsRequestWith503) {
  TestServer server;
  RawClient client(server.port());
  client.Send(Post("/out-of-memory", ""));
  EXPECT_EQ(client.Read().status, 503);
  RawClient next(server.port());
  next.Send(Get("/hello"));
  EXPECT_EQ(next.Read().body, "hi");
}

TEST(Transport, MalformedRequestsAreAnsweredAndClosed) {
  TestServer server;
  for (const std::string bytes :
       {"nonsense\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "\x16\x03\x01",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx"}) {
    RawClient client(server.port());
    client.Send(bytes);
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.AtEnd()) << bytes;
  }
}

}  // namespace
}  // namespace quire::server
