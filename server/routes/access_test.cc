// Keys on the daemon's routes: which role may use which route, and the errors for everyone else.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using testing::PostBytes;
using testing::RawClient;
using testing::RawResponse;
using testing::TestDaemon;

class RouteAccess : public ::testing::Test {
 protected:
  RouteAccess() {
    const auto user = MakeKey("user", Role::kInference, {});
    const auto admin = MakeKey("admin", Role::kAdmin, {});
    const auto narrow = MakeKey("narrow", Role::kInference, {.parallel = 1});
    const auto heavy = MakeKey("heavy", Role::kInference, {.weight = 3});
    heavy_ = fmt::format("x-api-key: {}\r\n", heavy->secret);
    user_ = fmt::format("Authorization: Bearer {}\r\n", user->secret);
    admin_ = fmt::format("x-api-key: {}\r\n", admin->secret);
    narrow_ = fmt::format("x-api-key: {}\r\n", narrow->secret);
    auto ring = KeyRing::Parse(user->line + "\n" + admin->line + "\n" + narrow->line + "\n" + heavy->line);
    EXPECT_TRUE(ring.has_value());
    daemon_.OnIoThread([&] { daemon_.server().SetKeys(*std::move(ring)); });
  }

  RawResponse SendRequest(const std::string& method, const std::string& path, const std::string& fields,
                          const std::string& body = {}) {
    RawClient client(daemon_.port());
    client.Send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", method,
                            path, body.size(), fields, body));
    return client.Read(method == "HEAD");
  }

  TestDaemon daemon_;
  std::string user_, admin_, narrow_, heavy_;
};

const std::vector<std::pair<std::string, std::string>> kInferenceRoutes = {
    {"POST", "/api/chat"},       {"POST", "/api/generate"},
    {"POST", "/api/embed"},      {"POST", "/api/embeddings"},
    {"POST", "/api/show"},       {"GET", "/api/tags"},
    {"GET", "/api/ps"},          {"GET", "/api/version"},
    {"GET", "/v1/models"},       {"GET", "/v1/models/demo"},
    {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"},
    {"POST", "/v1/embeddings"},  {"POST", "/v2/embed"},
    {"POST", "/embed"},          {"POST", "/v1/responses"},
    {"POST", "/v1/messages"},    {"POST", "/tokenize"},
    {"POST", "/detokenize"},     {"POST", "/v1/messages/count_tokens"}};
const std::vector<std::pair<std::string, std::string>> kAdminRoutes = {
    {"POST", "/api/create"},
    {"POST", "/api/copy"},
    {"DELETE", "/api/delete"},
    {"HEAD", "/api/blobs/sha256:" + std::string(64, 'a')},
    {"POST", "/api/blobs/sha256:" + std::string(64, 'a')}};

TEST_F(RouteAccess, EveryRouteAsksForItsRole) {
  for (const auto& [method, path] : kInferenceRoutes) {
    EXPECT_EQ(SendRequest(method, path, "").status, 401) << path;
    EXPECT_EQ(SendRequest(method, path, "Authorization: Bearer wrong\r\n").status, 401) << path;
    const int status = SendRequest(method, path, user_).status;
    EXPECT_TRUE(status == 200 || status == 400) << path << " " << status;
  }
  for (const auto& [method, path] : kAdminRoutes) {
    EXPECT_EQ(SendRequest(method, path, "").status, 401) << path;
    EXPECT_EQ(SendRequest(method, path, user_).status, 403) << path;
    const int status = SendRequest(method, path, admin_).status;
    EXPECT_TRUE(status != 401 && status != 403 && status < 500) << path << " " << status;
  }
}

// What a client says of a model's stay is its own claim, unless an admin says it.
TEST_F(RouteAccess, OnlyAnAdminPinsAndUnloadsModelsForEverybody) {
  const auto& seen = daemon_.backend().seen;
  for (const std::string& key : {user_, admin_}) {
    const bool by_admin = key == admin_;
    ASSERT_EQ(SendRequest("POST", "/api/generate", key, R"({"model":"demo","keep_alive":-1})").status, 200);
    ASSERT_EQ(SendRequest("POST", "/api/embed", key, R"({"model":"demo","input":[],"keep_alive":-1})").status,
              200);
    ASSERT_EQ(SendRequest("POST", "/api/generate", key, R"({"model":"demo","keep_alive":0})").status, 200);
    EXPECT_EQ(seen.by_admin.size(), by_admin ? 4U : 2U);
    for (size_t last = 0; last < 2; ++last)
      EXPECT_EQ(seen.by_admin[seen.by_admin.size() - 1 - last], by_admin);
    EXPECT_EQ(seen.claims_ended.size(), 1U);
    EXPECT_EQ(seen.unloaded.size(), by_admin ? 1U : 0U);
  }
}

// Neither the context nor the name of the last request, which may be another key's.
TEST_F(RouteAccess, TheLastRequestShowsToAdminsAlone) {
  scheduler::LoadedModel loaded;
  loaded.spec.name = "alias:latest";
  loaded.loaded_as = "demo:latest";
  loaded.num_ctx = 640;
  loaded.info.num_ctx = 100;
  daemon_.OnIoThread([&] { daemon_.backend().script.loaded = {loaded}; });
  for (const std::string& key : {user_, admin_}) {
    const bool by_admin = key == admin_;
    const json ps = json::parse(SendRequest("GET", "/api/ps", key).body).at("models").at(0);
    EXPECT_EQ(ps.at("context_length"), by_admin ? 640 : 100);
    EXPECT_EQ(ps.at("name"), by_admin ? "alias:latest" : "demo:latest");
    const json slot = json::parse(SendRequest("GET", "/slots", key).body).at(0);
    EXPECT_EQ(slot.at("n_ctx"), by_admin ? 640 : 100);
  }
}

TEST_F(RouteAccess, HealthIsOpen) {
  for (const char* path : {"/", "/health", "/livez", "/readyz"}) {
    EXPECT_EQ(SendRequest("GET", path, "").status, 200) << path;
    EXPECT_EQ(SendRequest("HEAD", path, "").status, 200) << path;
  }
}

TEST_F(RouteAccess, ARefusalHasTheShapeOfItsRoute) {
  const RawResponse ollama_reply = SendRequest("POST", "/api/chat", "");
  EXPECT_TRUE(json::parse(ollama_reply.body).at("error").is_string());
  EXPECT_EQ(ollama_reply.headers.at("www-authenticate"), "Bearer");
  EXPECT_THAT(ollama_reply.headers.at("content-type"), ::testing::StartsWith("application/json"));
  const json openai = json::parse(SendRequest("POST", "/v1/chat/completions", "").body).at("error");
  EXPECT_EQ(openai.at("type"), "invalid_request_error");
  EXPECT_EQ(openai.at("code"), "invalid_api_key");
  EXPECT_TRUE(openai.at("param").is_null());
  const json anthropic = json::parse(SendRequest("POST", "/v1/messages", "").body);
  EXPECT_EQ(anthropic.at("type"), "error");
  EXPECT_EQ(anthropic.at("error").at("type"), "authentication_error");
  EXPECT_TRUE(anthropic.at("error").at("message").is_string());
}

// The client announces a body and waits: it gets the refusal before it sends any of it, and the connection
// ends.
TEST_F(RouteAccess, ARefusedBodyIsNotRead) {
  for (const char* ask : {"", "Expect: 100-continue\r\n"}) {
    RawClient client(daemon_.port());
    client.Send(
        fmt::format("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n{}\r\n", ask));
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 401);
    EXPECT_EQ(response.headers.at("connection"), "close");
  }
}

TEST_F(RouteAccess, BrowsersAreCheckedBeforeKeys) {
  EXPECT_EQ(SendRequest("GET", "/api/tags", "Origin: https://evil.example\r\n" + user_).status, 403);
  EXPECT_EQ(SendRequest("OPTIONS", "/api/chat", "Origin: http://localhost:3000\r\n").status,
            204);  // carries no key
  const RawResponse refused = SendRequest("POST", "/api/chat", "Origin: http://localhost:3000\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"),
            "http://localhost:3000");  // the page may read why
}

TEST_F(RouteAccess, AKeyBeyondItsLimitIs429) {
  daemon_.backend().script.block_submit = true;
  RawClient first(daemon_.port());
  first.Send(
      PostBytes("/api/chat", R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})", narrow_));
  daemon_.backend().blocked.get_future().wait();
  const RawResponse second = SendRequest("POST", "/v1/chat/completions", narrow_);
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.at("retry-after"), "1");
  EXPECT_EQ(json::parse(second.body).at("error").at("type"), "rate_limit_error");
  EXPECT_EQ(SendRequest("GET", "/api/tags", narrow_).status, 200);
  EXPECT_EQ(SendRequest("POST", "/api/chat", user_).status, 400);
  first.Reset();
  daemon_.backend().abandoned.get_future().wait();
}

// A client may send its next request as soon as it has read an answer: the place is free before the answer
// has left. This one does not read it, and the answer does not fit what a connection holds.
TEST_F(RouteAccess, AnAnswerThatLeavesKeepsNoPlace) {
  daemon_.OnIoThread([&] {
    daemon_.backend().script.events = {
        api::PromptReady{1, 0}, api::TextDelta{.text = std::string(size_t{24} << 20, 'x'), .tokens = 1},
        api::Finished{}};
  });
  const std::string body = R"({"model":"demo","stream":false,"messages":[{"role":"user","content":"Hi"}]})";
  RawClient first(daemon_.port());
  first.Send(PostBytes("/api/chat", body, narrow_));
  int status = 0;
  for (int tries = 0; tries < 20'000 && status != 400; ++tries)
    status =
        SendRequest("POST", "/api/chat", narrow_).status;  // 429 until the answer leaves, then 400: no body
  EXPECT_EQ(status, 400);
  first.Reset();
}

// A key's share of the machine travels with its requests, whichever dialect they are in.
TEST_F(RouteAccess, AKeysWeightTravelsWithItsRequests) {
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"/api/chat", R"({"model":"demo","stream":false,"messages":[{"role":"user","content":"Hi"}]})"},
      {"/api/embed", R"({"model":"demo","input":"Hi"})"},
      {"/v1/chat/completions", R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})"},
      {"/v1/responses", R"({"model":"demo","input":"Hi"})"},
      {"/v1/messages", R"({"model":"demo","max_tokens":5,"messages":[{"role":"user","content":"Hi"}]})"}};
  for (const auto& [path, body] : requests) {
    for (const auto& [key, weight] : {std::pair(heavy_, 3), {user_, 1}}) {
      const size_t before = daemon_.backend().seen.requests.size();
      daemon_.Post(path, body, key);
      ASSERT_EQ(daemon_.backend().seen.requests.size(), before + 1) << path;
      const api::Client& client = daemon_.backend().seen.requests.back().client;
      EXPECT_EQ(client.party.weight(), weight) << path;
      EXPECT_EQ(client.party.name(), weight == 3 ? "key:heavy" : "key:user") << path;
      EXPECT_EQ(client.Member(), "") << path;
    }
  }
}

// A tenant is its key's holder: a new secret keeps what the holder's requests left in the cache.
TEST_F(RouteAccess, TenantsAreHolders) {
  HttpRequest one;
  one.identity = "alice";
  HttpRequest other;
  other.identity = "bob";
  one.fields = {{"x-api-key", "first"}};
  const std::string tenant = TenantOf(one);
  one.fields = {{"authorization", "Bearer second"}};
  EXPECT_EQ(TenantOf(one), tenant);
  EXPECT_NE(TenantOf(other), tenant);
}

}  // namespace
}  // namespace quire::server
