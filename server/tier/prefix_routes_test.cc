#include "server/tier/prefix_routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/base/sha256.h"
#include "server/testing/test_daemon.h"
#include "server/tier/prefix_view.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;
using testing::TestDaemon;

// "user" and "root": their secrets are their names.
KeyRing Keys() {
  return *KeyRing::Parse(
      "user inference sha256:04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb\n"
      "root admin sha256:4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2\n");
}

class PrefixRoutes : public ::testing::Test {
 protected:
  PrefixRoutes() {
    std::string pattern = (fs::temp_directory_path() / "quire-prefixes-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    auto tier = DiskTier::Open({.folder = folder_, .budget_bytes = 1 << 20});
    EXPECT_TRUE(tier.has_value());
    tier_ = *std::move(tier);
    sources_.open = [this]() -> api::Result<SnapshotService::Opened> {
      if (!on_) return api::Fail(api::ErrorCode::kNotFound, "prefixes are not kept on disk");
      return SnapshotService::Opened{tier_, "p1"};
    };
    daemon_ = std::make_unique<TestDaemon>(TransportLimits{},
                                           [this](Router& router) { AddPrefixRoutes(router, sources_); });
    sources_.pools = &daemon_->pools();
  }
  ~PrefixRoutes() override {
    daemon_.reset();
    fs::remove_all(folder_);
  }

  // A prefix of four tokens in one segment of 1,000 bytes.
  std::string Put(int32_t first, const std::string& model = "m:latest", const std::string& tenant = "") {
    const PrefixOrigin origin{.model = model,
                              .program = "p1",
                              .files = "sha256-" + api::Sha256Of(model),
                              .byte_class = "v4",
                              .isolation = fmt::format("{}:{}", tenant.size(), tenant),
                              .segment_tokens = 4};
    const KeyChain chain(tier_->RootOf(origin), {first, 2, 3, 4}, 4);
    const PrefixPiece piece = chain.Pieces(0, 4, false).front();
    auto writer = tier_->Create({piece.key, chain.Prefix(0), 0, 4, false, 1000}, chain.Tokens(0, 4), &origin);
    EXPECT_TRUE(writer && writer->Write(std::string(1000, 'k')) && writer->Commit());
    return HexOf(piece.key);
  }
  RawResponse Delete(const std::string& body) {
    RawClient client(daemon_->port());
    std::string bytes = testing::PostBytes("/quire/prefixes", body);
    bytes.replace(0, 4, "DELETE");
    client.Send(bytes);
    return client.Read();
  }
  json List() { return json::parse(daemon_->Get("/quire/prefixes").body); }

  fs::path folder_;
  bool on_ = true;
  std::shared_ptr<DiskTier> tier_;
  PrefixSources sources_;
  std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(PrefixRoutes, ListsAndShows) {
  const std::string id = Put(1);
  const json list = List();
  EXPECT_EQ(list["files"], 1);
  EXPECT_EQ(list["budget_bytes"], 1 << 20);
  EXPECT_EQ(list["writing"], true);
  ASSERT_EQ(list["prefixes"].size(), 1);
  EXPECT_EQ(list["prefixes"][0]["id"], id);
  EXPECT_EQ(list["prefixes"][0]["model"], "m:latest");
  EXPECT_EQ(list["prefixes"][0]["tokens"], 4);
  EXPECT_GT(list["prefixes"][0]["bytes"], 1000);
  const json shown = json::parse(daemon_->Get("/quire/prefixes/" + id.substr(0, 8)).body);
  EXPECT_EQ(shown["id"], id);
  EXPECT_EQ(shown["byte_class"], "v4");
  EXPECT_EQ(daemon_->Get("/quire/prefixes/0000").status, 404);
  EXPECT_EQ(daemon_->Get("/quire/prefixes/00").status, 400);
}

TEST_F(PrefixRoutes, WhatIsExportedIsImported) {
  const std::string id = Put(1);
  const RawResponse file = daemon_->Get("/quire/prefixes/" + id + "/file");
  ASSERT_EQ(file.status, 200);
  tier_->PruneAll();
  const RawResponse imported = daemon_->Post("/quire/prefixes", file.body);
  ASSERT_EQ(imported.status, 200) << imported.body;
  EXPECT_EQ(json::parse(imported.body)["ids"], json::array({id}));
  EXPECT_EQ(List()["prefixes"].size(), 1);
  // For the holder of a key it is another prefix.
  const RawResponse owned = daemon_->Post("/quire/prefixes?key=alice", file.body);
  EXPECT_NE(json::parse(owned.body)["ids"], json::array({id}));
  EXPECT_EQ(List()["prefixes"].size(), 2);

  EXPECT_EQ(daemon_->Post("/quire/prefixes?tenant=alice", file.body).status, 400);
  const RawResponse damaged = daemon_->Post("/quire/prefixes", file.body.substr(0, file.body.size() - 9));
  EXPECT_EQ(damaged.status, 400);
  EXPECT_THAT(damaged.body, HasSubstr("the exported prefix is damaged"));
  EXPECT_THAT(daemon_->Post("/quire/prefixes", "a photo").body, HasSubstr("not an exported prefix"));
}

TEST_F(PrefixRoutes, PrunesWhatIsNamed) {
  const std::string id = Put(1);
  Put(2, "other:7b");
  Put(3, "other:7b");
  EXPECT_EQ(Delete("{}").status, 400);
  EXPECT_EQ(Delete(R"({"all":true,"model":"m"})").status, 400);
  EXPECT_EQ(Delete(R"({"ids":["0000"]})").status, 404);
  EXPECT_EQ(Delete(R"({"ids":7})").status, 400);
  EXPECT_EQ(Delete(R"({"older":7})").status, 400);
  EXPECT_EQ(json::parse(Delete(R"({"unused_seconds":86400})").body)["prefixes"], 0);
  EXPECT_EQ(json::parse(Delete(R"({"model":"other:7b"})").body)["prefixes"], 2);
  EXPECT_EQ(List()["prefixes"].size(), 1);
  EXPECT_EQ(json::parse(Delete(R"({"ids":[")" + id.substr(0, 10) + "\"]}").body)["files"], 1);
  Put(4);
  EXPECT_EQ(json::parse(Delete(R"({"all":true})").body)["prefixes"], 1);
  EXPECT_EQ(List()["files"], 0);
}

TEST_F(PrefixRoutes, AreForAdmins) {
  daemon_->OnIoThread([this] { daemon_->server().SetKeys(Keys()); });
  const std::string id = Put(1, "m", api::Sha256Of("key:root"));
  const std::string other = Put(2, "m", api::Sha256Of("key:user"));
  const RawResponse forbidden =
      daemon_->Get("/quire/prefixes/" + other + "/file", "Authorization: Bearer root\r\n");
  EXPECT_EQ(forbidden.status, 403) << "an admin does not read others' prompts";
  EXPECT_THAT(forbidden.body, HasSubstr("another API key"));
  for (const std::string& path : {std::string("/quire/prefixes"), "/quire/prefixes/" + id + "/file"}) {
    EXPECT_EQ(daemon_->Get(path).status, 401);
    EXPECT_EQ(daemon_->Get(path, "Authorization: Bearer user\r\n").status, 403);
    EXPECT_EQ(daemon_->Get(path, "Authorization: Bearer root\r\n").status, 200);
  }
  EXPECT_EQ(daemon_->Post("/quire/prefixes", "", "Authorization: Bearer user\r\n").status, 403);
}

TEST_F(PrefixRoutes, SayWhyThereAreNone) {
  on_ = false;
  const RawResponse none = daemon_->Get("/quire/prefixes");
  EXPECT_EQ(none.status, 404);
  EXPECT_THAT(none.body, HasSubstr("not kept on disk"));
}

}  // namespace
}  // namespace quire::server
