#include "server/http/origin_check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire::server {
namespace {

using boost::asio::ip::make_address;

const OriginPolicy& Defaults() {
  static const OriginPolicy policy({}, "MyBox");
  return policy;
}

TEST(HostCheck, LoopbackAcceptsOnlyNamesThatCannotBeRebound) {
  const auto local = make_address("127.0.0.1");
  for (const char* host :
       {"",           "localhost",      "localhost:11434",  "LOCALHOST",         "localhost.",
        "mybox",      "MYBOX:80",       "x.localhost",      "printer.local",     "host.docker.internal:11434",
        "127.0.0.1",  "127.0.0.1:1",    "127.8.9.1",        "0.0.0.0:11434",     "10.1.2.3",
        "172.16.0.1", "172.31.255.255", "192.168.1.1:8080", "[::1]:11434",       "[::1]",
        "::1",        "[::]",           "[fd00::1]:1",      "[::ffff:127.0.0.1]"}) {
    EXPECT_TRUE(Defaults().AllowsHost(host, local)) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:11434", "localhost.evil.example", "127.0.0.1.evil.example", "8.8.8.8",
        "172.32.0.1", "[2001:db8::1]", "notlocalhost", "local", "evil.example:x", "localhost:x", "[::1",
        "[::1]x", "2130706433", "0x7f.1", "a b", "localhost@evil.example", "myboxx"}) {
    EXPECT_FALSE(Defaults().AllowsHost(host, local)) << host;
  }
}

TEST(HostCheck, IsNotForOtherBinds) {
  EXPECT_TRUE(Defaults().AllowsHost("evil.example", make_address("0.0.0.0")));
  EXPECT_TRUE(Defaults().AllowsHost("evil.example", make_address("192.168.1.5")));
  EXPECT_FALSE(Defaults().AllowsHost("evil.example", make_address("::1")));
}

TEST(OriginCheck, DefaultTable) {
  const std::string host = "localhost:11434";
  for (const char* origin :
       {"http://localhost", "https://localhost", "http://localhost:3000", "https://127.0.0.1:8443",
        "http://0.0.0.0", "http://127.0.0.1", "HTTP://LOCALHOST:1", "app://obsidian.md", "file://",
        "tauri://localhost", "vscode-webview://1a2b", "vscode-file://vscode-app", "chrome-extension://abc",
        "moz-extension://abc", "safari-extension://abc", "ms-browser-extension://abc"}) {
    EXPECT_TRUE(Defaults().AllowsOrigin(origin, host)) << origin;
  }
  for (const char* origin :
       {"null", "", "https://evil.example", "http://localhost.evil.example",
        "http://localhost:1.evil.example", "http://localhost:", "http://localhost:123456",
        "http://evil.example/http://localhost", "ftp://localhost", "http://localhost@evil.example",
        "localhost", "http://127.0.0.1.evil.example", "http://xlocalhost", "evil-app://x",
        "http://192.168.1.2"}) {
    EXPECT_FALSE(Defaults().AllowsOrigin(origin, host)) << origin;
  }
}

TEST(OriginCheck, OwnOriginAndConfiguredPatterns) {
  EXPECT_TRUE(Defaults().AllowsOrigin("http://mybox:11434", "mybox:11434"));
  EXPECT_TRUE(Defaults().AllowsOrigin("https://mybox", "MyBox"));
  EXPECT_FALSE(Defaults().AllowsOrigin("http://mybox:11435", "mybox:11434"));

  const OriginPolicy policy({"https://ui.example", "https://*.corp.example", "http://dev.example:*"}, "box");
  EXPECT_TRUE(policy.AllowsOrigin("https://ui.example", ""));
  EXPECT_TRUE(policy.AllowsOrigin("https://a.b.corp.example", ""));
  EXPECT_TRUE(policy.AllowsOrigin("http://dev.example:99", ""));
  EXPECT_FALSE(policy.AllowsOrigin("http://ui.example", ""));
  EXPECT_FALSE(policy.AllowsOrigin("https://corp.example", ""));
  EXPECT_FALSE(policy.AllowsOrigin("http://dev.example", ""));

  const OriginPolicy any({"*"}, "box");
  EXPECT_TRUE(any.AllowsOrigin("https://evil.example", ""));
  EXPECT_TRUE(any.AllowsOrigin("null", ""));
  EXPECT_FALSE(policy.AllowsOrigin("null", ""));
}

TEST(OriginCheck, PreflightNamesMethodsHeadersAndAge) {
  const HttpResponse response = PreflightResponse("http://localhost:3000");
  EXPECT_EQ(response.status, 204);
  const auto value = [&response](std::string_view name) {
    const auto found = std::ranges::find(response.headers, name, &HeaderField::name);
    return found == response.headers.end() ? std::string() : found->value;
  };
  EXPECT_EQ(value("Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(value("Vary"), "Origin");
  EXPECT_EQ(value("Access-Control-Max-Age"), "43200");
  EXPECT_EQ(value("Access-Control-Allow-Methods"), "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS");
  for (const char* header : {"Authorization", "Content-Type", "x-stainless-retry-count", "anthropic-version",
                             "OpenAI-Organization", "OpenAI-Project", "Content-Encoding"}) {
    EXPECT_NE(value("Access-Control-Allow-Headers").find(header), std::string::npos) << header;
  }
  for (const char* header : {"X-Request-Id", "Retry-After", "x-ratelimit-remaining-requests"}) {
    EXPECT_NE(value("Access-Control-Expose-Headers").find(header), std::string::npos) << header;
  }
}

TEST(OriginCheck, PreflightAllowsWhatIsRequested) {
  const auto allowed = [](std::string_view requested) {
    const HttpResponse response = PreflightResponse("http://localhost:3000", requested);
    return std::ranges::find(response.headers, "Access-Control-Allow-Headers", &HeaderField::name)->value;
  };
  EXPECT_NE(allowed("content-type, X-Stainless-Made-Up").find(",x-stainless-made-up"), std::string::npos);
  EXPECT_NE(allowed("traceparent,idempotency-key,x-title").find(",traceparent,idempotency-key,x-title"),
            std::string::npos);
  EXPECT_EQ(allowed("x-a\r\nb, x-a:b, " + std::string(1000, 'a')), allowed(""));
  EXPECT_EQ(allowed("x-stainless-retry-count"), allowed(""));
  EXPECT_LT(allowed(std::string(100'000, ',')).size(), 1000U);
}

}  // namespace
}  // namespace quire::server
