#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/console/console.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;
using testing::TestDaemon;
using Clock = std::chrono::steady_clock;

// "user" and "root": their secrets are their names.
KeyRing Ring() {
  return *KeyRing::Parse(
      "user inference sha256:04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb weight=3 "
      "per_minute=600\n"
      "root admin sha256:4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2\n");
}

class KeysRouteTest : public ::testing::Test {
 protected:
  KeysRouteTest() {
    sources_.uses = [this] { return daemon_->server().KeyUses(); };
    sources_.create = [this](KeyRequest request, const fair::PartyId&) { return Create(std::move(request)); };
    sources_.remove = [this](std::string name, const fair::PartyId&) { return Remove(std::move(name)); };
    daemon_ = std::make_unique<TestDaemon>(TransportLimits{},
                                           [this](Router& router) { AddKeyRoutes(router, sources_); });
  }
  Awaitable<api::Result<std::string>> Create(KeyRequest request) {
    if (request.name == "taken") {
      co_return api::Fail(api::ErrorCode::kInvalidArgument, "there is a key named taken", "name");
    }
    made_.push_back(std::move(request));
    co_return "quire-secret";
  }

  Awaitable<api::Result<void>> Remove(std::string name) {
    if (name == "none") co_return api::Fail(api::ErrorCode::kNotFound, "there is no key named none", "name");
    removed_.push_back(std::move(name));
    co_return api::Result<void>();
  }
  RawResponse Delete(const std::string& body, const std::string& fields = "") {
    RawClient client(daemon_->port());
    client.Send("DELETE /quire/keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body);
    return client.Read();
  }

  KeySources sources_;
  std::vector<KeyRequest> made_;
  std::vector<std::string> removed_;
  std::unique_ptr<TestDaemon> daemon_;
};

const std::string kRoot = "Authorization: Bearer root\r\n";
const std::string kUser = "Authorization: Bearer user\r\n";

TEST_F(KeysRouteTest, ListsKeysWithTheirLastUseForAdminsOnly) {
  EXPECT_EQ(daemon_->Get("/quire/keys").body, R"({"required":false,"keys":[]})");
  daemon_->OnIoThread([this] { daemon_->server().SetKeys(Ring()); });
  EXPECT_EQ(daemon_->Get("/quire/keys").status, 401);
  EXPECT_EQ(daemon_->Get("/quire/keys", kUser).status, 403);
  const json first = json::parse(daemon_->Get("/quire/keys", kRoot).body);
  ASSERT_EQ(first["keys"].size(), 2);
  EXPECT_EQ(first["keys"][0], json({{"name", "user"},
                                    {"role", "inference"},
                                    {"weight", 3},
                                    {"parallel", 0},
                                    {"per_minute", 600},
                                    {"requests", 0}}));  // a refusal is no use
  EXPECT_EQ(first["keys"][1]["name"], "root");
  EXPECT_EQ(first["keys"][1]["own"], true);
  EXPECT_EQ(daemon_->Get("/api/tags", kUser).status, 200);
  const auto second = daemon_->Get("/quire/keys", kRoot);
  EXPECT_EQ(json::parse(second.body)["keys"][0]["requests"], 1);
  EXPECT_TRUE(json::parse(second.body)["keys"][0].contains("idle_ms"));
  EXPECT_EQ(second.body.find("sha256"), std::string::npos);
}

TEST_F(KeysRouteTest, MakesAKeyAndShowsItOnce) {
  const auto made = daemon_->Post("/quire/keys", R"({"name":"ci","role":"admin","parallel":4})");
  EXPECT_EQ(made.status, 201);
  EXPECT_EQ(json::parse(made.body), json({{"name", "ci"}, {"key", "quire-secret"}}));
  ASSERT_EQ(made_.size(), 1);
  EXPECT_EQ(made_[0].name, "ci");
  EXPECT_EQ(made_[0].role, Role::kAdmin);
  EXPECT_EQ(made_[0].limits.parallel, 4);
  EXPECT_EQ(made_[0].limits.weight, 1);
  daemon_->OnIoThread([this] { daemon_->server().SetKeys(Ring()); });
  EXPECT_EQ(daemon_->Post("/quire/keys", R"({"name":"b"})", kUser).status, 403);
}

TEST_F(KeysRouteTest, AnAdminRemovesOtherKeysThanItsOwn) {
  daemon_->OnIoThread([this] { daemon_->server().SetKeys(Ring()); });
  EXPECT_EQ(Delete(R"({"name":"user"})").status, 401);
  EXPECT_EQ(Delete(R"({"name":"root"})", kUser).status, 403);
  const auto itself = Delete(R"({"name":"root"})", kRoot);
  EXPECT_EQ(itself.status, 403);
  EXPECT_THAT(itself.body, HasSubstr("cannot remove itself"));
  EXPECT_EQ(Delete(R"({"name":"none"})", kRoot).status, 404);
  for (const auto& [body, word] :
       {std::pair{"{}", "name"}, {R"({"name":"a","all":true})", "all"}, {R"({"name":1})", "name"}}) {
    const auto refused = Delete(body, kRoot);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_THAT(refused.body, HasSubstr(word));
  }
  EXPECT_TRUE(removed_.empty());
  const auto done = Delete(R"({"name":"user"})", kRoot);
  EXPECT_EQ(done.status, 204);
  EXPECT_EQ(done.body, "");
  EXPECT_THAT(removed_, ::testing::ElementsAre("user"));
}

TEST_F(KeysRouteTest, RefusesByName) {
  for (const auto& [body, word] : {std::pair{"{}", "name"},
                                   {R"({"name":"a","role":"owner"})", "role"},
                                   {R"({"name":"a","weight":0})", "weight"},
                                   {R"({"name":"a","parallel":-1})", "parallel"},
                                   {R"({"name":"a","limit":1})", "limit"},
                                   {R"({"name":"taken"})", "taken"},
                                   {"[", "JSON"}}) {
    const auto refused = daemon_->Post("/quire/keys", body);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_THAT(refused.body, HasSubstr(word));
  }
  EXPECT_TRUE(made_.empty());
}

}  // namespace
}  // namespace quire::server
