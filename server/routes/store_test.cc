// The routes that change the store, through the front door.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/base/sha256.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::Named;
using testing::PostBytes;
using testing::RawClient;
using testing::RawResponse;
using testing::ReadFile;
using testing::TestDaemon;

RawResponse Send(TestDaemon& daemon, std::string_view method, const std::string& path,
                 std::string_view body) {
  RawClient client(daemon.port());
  client.Send(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", method, path,
                          body.size(), body));
  return client.Read(method == "HEAD");
}

std::string BlobRoute(std::string_view content) { return "/api/blobs/sha256:" + api::Sha256Of(content); }

size_t FilesInBlobs(TestDaemon& daemon) {
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(daemon.store().root() / "blobs"))
    count += entry.is_regular_file() ? 1 : 0;
  return count;
}

TEST(StoreRoutes, CopyThenDelete) {
  TestDaemon daemon;
  const RawResponse copied = daemon.Post("/api/copy", R"({"source":"demo","destination":"second"})");
  EXPECT_EQ(copied.status, 200);
  EXPECT_EQ(copied.body, "");
  const auto store = daemon.store().Open();
  EXPECT_TRUE(store.Find(Named("second")));
  EXPECT_EQ(Send(daemon, "DELETE", "/api/delete", R"({"model":"second"})").status, 200);
  EXPECT_TRUE(daemon.backend().seen.unloaded.empty());  // "demo" is the same model
  EXPECT_TRUE(store.Find(Named("demo")));
  const RawResponse again = Send(daemon, "DELETE", "/api/delete", R"({"model":"second"})");
  EXPECT_EQ(again.status, 404);
  EXPECT_EQ(json::parse(again.body)["error"], "model 'second' not found");
  EXPECT_EQ(daemon.Post("/api/copy", R"({"source":"nobody","destination":"x"})").status, 404);
  EXPECT_EQ(daemon.Post("/api/copy", R"({"source":"demo","destination":"!!"})").status, 400);
  EXPECT_EQ(daemon.Post("/api/delete", R"({"model":"demo"})").headers.at("allow"), "DELETE, OPTIONS");
}

TEST(StoreRoutes, AModelThatRunsElsewhereIsListedAndRefusedByName) {
  TestDaemon daemon;
  json cloud = daemon.store().Manifest(json::array());
  cloud["config"] = daemon.store().Layer("application/vnd.docker.container.image.v1+json",
                                         R"({"remote_host":"https://ollama.com:443","remote_model":"big"})");
  testing::WriteFile(daemon.store().ManifestPath("big", "cloud"), cloud.dump());
  EXPECT_EQ(json::parse(daemon.Get("/api/tags").body)["models"].size(), 2U);
  EXPECT_EQ(json::parse(daemon.Get("/v1/models").body)["data"].size(), 2U);
  for (const auto& [path, more] : std::initializer_list<std::pair<const char*, const char*>>{
           {"/api/show", ""},
           {"/api/chat", R"(,"messages":[{"role":"user","content":"x"}])"},
           {"/v1/chat/completions", R"(,"messages":[{"role":"user","content":"x"}])"},
           {"/v1/embeddings", R"(,"input":"x")"},
           {"/api/create", R"(,"from":"big:cloud","stream":false)"}}) {
    const RawResponse refused = daemon.Post(path, std::string(R"({"model":"big:cloud")") + more + "}");
    EXPECT_EQ(refused.status, 400) << path << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("runs on https://ollama.com:443")) << path;
  }
  EXPECT_EQ(daemon.Get("/v1/models/big:cloud").status, 400);
  EXPECT_EQ(Send(daemon, "DELETE", "/api/delete", R"({"model":"big:cloud"})").status, 200);
}

TEST(StoreRoutes, TheLastNameOfAModelUnloadsIt) {
  TestDaemon daemon;
  const std::string digest = (*daemon.store().Open().Find(Named("demo")))->digest;
  EXPECT_EQ(Send(daemon, "DELETE", "/api/delete", R"({"model":"demo"})").status, 200);
  EXPECT_EQ(daemon.backend().seen.unloaded, std::vector<std::string>{digest});
}

TEST(StoreRoutes, BlobsComeInPiecesAndAreChecked) {
  TestDaemon daemon({.parser = {.body_bytes = 1000}});
  const std::string content(3'000'000, 'b');  // above the bound of other bodies
  const size_t before = FilesInBlobs(daemon);
  EXPECT_EQ(Send(daemon, "HEAD", BlobRoute(content), "").status, 404);
  EXPECT_EQ(Send(daemon, "POST", BlobRoute(content), content).status, 201);
  EXPECT_EQ(Send(daemon, "HEAD", BlobRoute(content), "").status, 200);
  EXPECT_EQ(ReadFile(daemon.store().Blob(content)), content);
  const RawResponse mismatch = Send(daemon, "POST", BlobRoute("other"), "another");
  EXPECT_EQ(mismatch.status, 400);
  EXPECT_THAT(mismatch.body, HasSubstr("digest mismatch, expected sha256:"));
  EXPECT_EQ(Send(daemon, "HEAD", "/api/blobs/sha256:zz", "").status, 400);
  EXPECT_EQ(Send(daemon, "POST", "/api/blobs/sha256:zz", "x").status, 400);
  EXPECT_EQ(FilesInBlobs(daemon), before + 1);
}

TEST(StoreRoutes, ABlobThatIsThereIsNotTakenAgain) {
  TestDaemon daemon;
  ASSERT_EQ(Send(daemon, "POST", BlobRoute("small"), "small").status, 201);
  RawClient client(daemon.port());
  // A small body is read away and the connection goes on.
  client.Send(PostBytes(BlobRoute("small"), "small"));
  EXPECT_EQ(client.Read().status, 200);
  // A client that sends Expect gets the refusal before it sends the body.
  client.Send(fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n",
      BlobRoute("small")));
  const RawResponse refused = client.Read();
  EXPECT_EQ(refused.status, 200);
  EXPECT_EQ(refused.headers.at("connection"), "close");
}

TEST(StoreRoutes, ExpectAndChunksWork) {
  TestDaemon daemon;
  RawClient client(daemon.port());
  client.Send("POST " + BlobRoute("chunked") +
              " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send("3\r\nchu\r\n4\r\nnked\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().status, 201);
  EXPECT_EQ(ReadFile(daemon.store().Blob("chunked")), "chunked");
}

TEST(StoreRoutes, AClientThatLeavesLeavesNothing) {
  TestDaemon daemon;
  const size_t before = FilesInBlobs(daemon);
  {
    RawClient client(daemon.port());
    client.Send(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\nhalf",
                            BlobRoute("never whole")));
    client.FinishSending();
    EXPECT_EQ(client.ReadToEnd(), "");
  }
  EXPECT_EQ(FilesInBlobs(daemon), before);
}

}  // namespace
}  // namespace quire::server
