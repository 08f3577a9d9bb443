#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "server/console/assets.h"
#include "server/console/console.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawResponse;
using testing::TestDaemon;

TEST(ConsolePage, IsServedWithAPolicyThatLoadsNothingFromElsewhere) {
  TestDaemon daemon({}, AddConsoleRoutes);
  const RawResponse page = daemon.Get("/ui/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers.at("content-type"), HasSubstr("text/html"));
  EXPECT_THAT(page.body, HasSubstr("<!doctype html>"));
  const std::string& policy = page.headers.at("content-security-policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'self'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
}

TEST(ConsolePage, IsFoundByBrowsersAndNotByOllamasClients) {
  TestDaemon daemon({}, AddConsoleRoutes);
  const RawResponse browser = daemon.Get("/", "Accept: text/html,application/xhtml+xml\r\n");
  EXPECT_EQ(browser.status, 302);
  EXPECT_EQ(browser.headers.at("location"), "/ui/");
  EXPECT_EQ(daemon.Get("/", "Accept: */*\r\n").body, "Ollama is running");
  EXPECT_EQ(daemon.Get("/").body, "Ollama is running");
}

TEST(ConsolePage, IsCompressedForWhoTakesIt) {
  TestDaemon daemon({}, AddConsoleRoutes);
  const RawResponse plain = daemon.Get("/ui/app.css");
  const RawResponse compressed = daemon.Get("/ui/app.css", "Accept-Encoding: gzip, br\r\n");
  EXPECT_EQ(compressed.headers.at("content-encoding"), "gzip");
  EXPECT_LT(compressed.body.size(), plain.body.size());
  EXPECT_EQ(Uncompressed(*FindAsset("/ui/app.css")), plain.body);
}

TEST(ConsolePage, IsNotSentAgainWhileItIsTheSame) {
  TestDaemon daemon({}, AddConsoleRoutes);
  const std::string etag = daemon.Get("/ui/").headers.at("etag");
  testing::RawClient client(daemon.port());
  client.Send("GET /ui/ HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: " + etag + "\r\n\r\n");
  const RawResponse again = client.Read(/*head=*/true);  // 304 has no body, like an answer to HEAD
  EXPECT_EQ(again.status, 304);
  EXPECT_TRUE(again.body.empty());
  EXPECT_EQ(daemon.Get("/ui/", "If-None-Match: \"other\"\r\n").status, 200);
}

TEST(ConsolePage, HasNoOtherFiles) {
  TestDaemon daemon({}, AddConsoleRoutes);
  for (const char* path : {"/ui/none.mjs", "/ui/../etc/passwd", "/ui//index.html", "/ui/vendor/none"}) {
    EXPECT_EQ(daemon.Get(path).status, 404) << path;
  }
  EXPECT_EQ(daemon.Get("/ui").headers.at("location"), "/ui/");
}

TEST(ConsolePage, IsSmall) {
  const auto all = AllAssets();
  const size_t bytes = std::accumulate(all.begin(), all.end(), size_t{0},
                                       [](size_t sum, const Asset& one) { return sum + one.gzip.size(); });
  EXPECT_LE(bytes, size_t{250} * 1000);
  EXPECT_GT(all.size(), 5u);
}

}  // namespace
}  // namespace quire::server
