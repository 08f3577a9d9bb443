#include "server/http/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::server {
namespace {

using namespace std::string_literals;

// Feeds in pieces of `step` bytes as a connection would: what was not taken comes again with more behind it.
std::expected<size_t, ParseFailure> FeedAll(HttpParser& parser, std::string_view bytes, size_t step) {
  std::string buffer;
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size() || !buffer.empty(); at += step) {
    if (at < bytes.size()) buffer += bytes.substr(at, step);
    for (;;) {
      const auto used = parser.Feed(buffer);
      if (!used) return used;
      buffer.erase(0, *used);
      taken += *used;
      if (*used == 0 || buffer.empty() || parser.done()) break;
    }
    if (parser.done() || at >= bytes.size()) break;
  }
  return taken;
}

int StatusOf(std::string_view bytes) {
  HttpParser parser(ParserLimits{});
  const auto fed = FeedAll(parser, bytes, bytes.size());
  return fed ? (parser.done() ? 200 : 0) : fed.error().status;
}

TEST(HttpRequest, AcceptsWhatAListNames) {
  const auto accepts = [](std::string field, std::string_view value) {
    HttpRequest request;
    request.fields = {{"accept", std::move(field)}};
    return request.Accepts("accept", value);
  };
  EXPECT_TRUE(accepts("text/html,application/xhtml+xml;q=0.9", "text/html"));
  EXPECT_TRUE(accepts("a/b , Text/HTML ;q=0.1", "text/html"));
  EXPECT_TRUE(accepts("gzip;level=9;q=0.001", "gzip"));
  EXPECT_FALSE(accepts("gzip;q=0", "gzip"));
  EXPECT_FALSE(accepts("gzip;level=9; q=0.000", "gzip"));
  EXPECT_FALSE(accepts("x-gzip, text/html+x", "gzip"));
  EXPECT_FALSE(accepts("x-gzip, text/html+x", "text/html"));
  EXPECT_FALSE(accepts("*/*", "text/html"));
  EXPECT_FALSE(accepts("", "gzip"));
  EXPECT_FALSE(accepts(",;,", "gzip"));
  EXPECT_FALSE(HttpRequest{}.Accepts("accept", "gzip"));
}

TEST(HttpParser, ReadsARequestInAnySplit) {
  const std::string bytes =
      "POST /api/chat?x=1 HTTP/1.1\r\nHost: localhost:11434\r\nX-Thing:  a b \r\nContent-Length: "
      "11\r\n\r\nhello world";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    HttpParser parser(ParserLimits{});
    const auto fed = FeedAll(parser, bytes + "GET /", step);
    ASSERT_TRUE(fed.has_value()) << fed.error().reason;
    ASSERT_TRUE(parser.done()) << step;
    EXPECT_EQ(*fed, bytes.size());
    const HttpRequest& request = parser.request();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/api/chat");
    EXPECT_EQ(request.query, "x=1");
    EXPECT_EQ(request.host, "localhost:11434");
    EXPECT_EQ(*request.Find("x-thing"), "a b");
    EXPECT_EQ(request.body, "hello world");
    EXPECT_TRUE(request.keep_alive);
  }
}

TEST(HttpParser, JoinsChunksInAnySplitAndLeavesTheNextRequest) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n1;ext=\"v\"\r\n \r\n0005\r\nworld\r\n0\r\nX-Trailer: t\r\nHost: evil\r\n\r\n";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    HttpParser parser(ParserLimits{});
    const auto fed = FeedAll(parser, bytes + "NEXT", step);
    ASSERT_TRUE(fed.has_value()) << step << ": " << fed.error().reason;
    ASSERT_TRUE(parser.done()) << step;
    EXPECT_EQ(*fed, bytes.size());
    EXPECT_EQ(parser.request().body, "hello world");
    EXPECT_EQ(parser.request().host, "a");
    EXPECT_EQ(parser.request().Find("x-trailer"), nullptr);
  }
}

TEST(HttpParser, ReadsAnEmptyChunkedBodyInAnySplit) {
  const std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    HttpParser parser(ParserLimits{});
    const auto fed = FeedAll(parser, bytes, step);
    ASSERT_TRUE(fed.has_value()) << step << ": " << fed.error().reason;
    EXPECT_TRUE(parser.done()) << step;
    EXPECT_EQ(parser.request().body, "");
  }
}

TEST(HttpParser, StopsAtTheHeaderSoThatTheBodyCanBeRefused) {
  HttpParser parser(ParserLimits{});
  const std::string header =
      "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
  const auto used = parser.Feed(header + "abc");
  ASSERT_TRUE(used.has_value());
  EXPECT_EQ(*used, header.size());
  EXPECT_TRUE(parser.header_done());
  EXPECT_FALSE(parser.done());
  EXPECT_TRUE(parser.request().expects_continue);
  EXPECT_EQ(parser.content_length(), 3u);
}

TEST(HttpParser, RefusesWhatTwoPartiesCouldReadDifferently) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\nx", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
      {"GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"s, 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417},
  };
  for (const auto& [bytes, status] : cases) EXPECT_EQ(StatusOf(bytes), status) << bytes;
}

TEST(HttpParser, RefusesMalformedRequestLines) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"\x16\x03\x01\x02", 400},  // a TLS greeting, at its first byte
      {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET\r\nHost: a\r\n\r\n", 400},
      {"GET /\r\nHost: a\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
      {"GET / a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / XTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.x\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET api HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /%0d%0aX:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200},
      {"GET / HTTP/1.0\r\n\r\n", 200},
      {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 200},
  };
  for (const auto& [bytes, status] : cases) EXPECT_EQ(StatusOf(bytes), status) << bytes;
}

TEST(HttpParser, RefusesMalformedChunks) {
  const std::string header = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string body :
       {"x\r\nab", "-1\r\na", "5 \r\nhello\r\n", "5\nhello\r\n", "5\r\nhelloX\r\n0\r\n\r\n",
        "fffffffffffffffffffff\r\n", "\r\n0\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n"}) {
    EXPECT_EQ(StatusOf(header + body), 400) << body;
  }
  EXPECT_EQ(StatusOf(header + "ffffffffffffffff\r\n"), 413);
}

TEST(HttpParser, LimitsTheHeader) {
  const auto request = [](size_t value) {
    return "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(value, 'x') + "\r\n\r\n";
  };
  EXPECT_EQ(StatusOf(request(60000)), 200);
  EXPECT_EQ(StatusOf(request(70000)), 431);
  EXPECT_EQ(StatusOf("GET /" + std::string(70000, 'x')), 431);  // before its end was seen
}

TEST(HttpParser, LimitsHowManyFieldsThereAre) {
  const auto request = [](size_t fields) {
    std::string text = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (size_t i = 1; i < fields; ++i) text += "a:\r\n";
    return text + "\r\n";
  };
  EXPECT_EQ(StatusOf(request(kFieldsMax)), 200);
  EXPECT_EQ(StatusOf(request(kFieldsMax + 1)), 431);
  EXPECT_EQ(StatusOf(request(16'000)), 431);
}

TEST(HttpParser, LimitsTheBodyHoweverItIsFramed) {
  const ParserLimits limits{.header_bytes = 65536, .body_bytes = 10};
  const auto status = [&limits](const std::string& bytes) {
    HttpParser parser(limits);
    const auto fed = FeedAll(parser, bytes, 7);
    return fed ? 200 : fed.error().status;
  };
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"), 200);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0"), 413);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status(chunked + "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), 200);
  EXPECT_EQ(status(chunked + "5\r\n01234\r\n6\r\n567890\r\n0\r\n\r\n"), 413);
}

TEST(HttpParser, BoundsChunkExtensionsAndTrailers) {
  const std::string header = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(StatusOf(header + "5;" + std::string(100000, 'x')), 400);
  EXPECT_EQ(StatusOf(header + "0\r\nX: " + std::string(100000, 'x')), 400);
}

TEST(HttpParser, TakesTheHostFromAnAbsoluteTarget) {
  HttpParser parser(ParserLimits{});
  const std::string bytes = "GET http://evil.example:80?q HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_TRUE(parser.Feed(bytes).has_value());
  EXPECT_EQ(parser.request().host, "evil.example:80");
  EXPECT_EQ(parser.request().path, "/");
  EXPECT_EQ(parser.request().query, "q");
}

TEST(HttpParser, DecodesThePathOnce) {
  HttpParser parser(ParserLimits{});
  const std::string bytes = "GET /v1/models/library%2Fa%3Alatest%2541+b?x=%2F HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_TRUE(parser.Feed(bytes).has_value());
  EXPECT_EQ(parser.request().path, "/v1/models/library/a:latest%41+b");
  EXPECT_EQ(parser.request().query, "x=%2F");
}

TEST(HttpParser, TellsWhetherTheConnectionLivesOn) {
  const auto keeps = [](const std::string& bytes) {
    HttpParser parser(ParserLimits{});
    EXPECT_TRUE(parser.Feed(bytes).has_value());
    return parser.request().keep_alive;
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"));
}

}  // namespace
}  // namespace quire::server
