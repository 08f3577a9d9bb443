// No path of the daemon's own folders reaches a client.
#include "server/routes/private_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PrivatePaths, NamesInsteadOfPaths) {
  const PrivatePaths paths("/var/lib/quire/my models/", {"/usr/lib/quire"});
  const std::string store = "/var/lib/quire/my models";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {store + "/blobs/sha256-ab12: Permission denied", "sha256-ab12: Permission denied"},
      {"cannot open " + store + "/blobs/.staging-1/a.gguf", "cannot open a.gguf"},
      {store + "/manifests/registry.ollama.ai/library/demo/latest: no layers",
       "model demo:latest: no layers"},
      {store + "/manifests/localhost:5000/me/demo/q4_0.", "model localhost:5000/me/demo:q4_0."},
      {store + ": Read-only file system", "the model store: Read-only file system"},
      {store + "/blobs: full, " + store + "/blobs/sha256-cd", "blobs: full, sha256-cd"},
      {"cannot start the model runner /usr/lib/quire/quire-runner: fork",
       "cannot start the model runner quire-runner: fork"},
      {"/srv" + store + "/blobs/x", "/srv" + store + "/blobs/x"},
      {"\"" + store + "/blobs/x\": full", "\"x\": full"},
      {"store=" + store + "/blobs/x", "store=x"},
      {store + "-other/x", store + "-other/x"},
      {"use /api/generate, or FROM /home/me/x.gguf", "use /api/generate, or FROM /home/me/x.gguf"},
      {"", ""}};
  for (const auto& [message, shown] : cases) EXPECT_EQ(paths.Hide(message), shown);
}

class ErrorPaths : public ::testing::Test {
 protected:
  void ExpectNoPath(const std::string& body, const std::string& named) {
    EXPECT_THAT(body, Not(HasSubstr(daemon_.store().directory().string())));
    EXPECT_THAT(body, HasSubstr(named));
  }
  std::string Chat() {
    return daemon_.Post("/api/chat", R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})").body;
  }
  std::string Show() { return daemon_.Post("/api/show", R"({"model":"demo"})").body; }

  testing::TestDaemon daemon_;
};

TEST_F(ErrorPaths, OfAMissingBlob) {
  const std::filesystem::path blob = daemon_.store().Blob("GGUF weights");
  std::filesystem::remove(blob);
  for (const std::string& body : {Chat(), Show()}) ExpectNoPath(body, blob.filename());
}

TEST_F(ErrorPaths, OfABlobOfAnotherSize) {
  const std::filesystem::path blob = daemon_.store().Blob("GGUF weights");
  testing::WriteFile(blob, "GGUF");
  ExpectNoPath(Chat(), blob.filename());
}

TEST_F(ErrorPaths, OfABrokenManifest) {
  testing::WriteFile(daemon_.store().ManifestPath("demo"), "{");
  ExpectNoPath(Chat(), "demo:latest");
}

TEST_F(ErrorPaths, OfTheSchedulerAndTheRunner) {
  const std::string blob = daemon_.store().Blob("GGUF weights").string();
  const api::Error error{api::ErrorCode::kBadModel, blob + ": truncated"};
  daemon_.backend().script.submit_error = error;
  ExpectNoPath(Chat(), "truncated");
  daemon_.backend().script.submit_error.reset();
  daemon_.backend().script.events = {api::PromptReady{}, api::TextDelta{.text = "a", .tokens = 1},
                                     api::Failed{error}};
  ExpectNoPath(Chat(), "truncated");
  daemon_.backend().script.inspected.error = error;
  ExpectNoPath(Show(), "truncated");
  const std::string checked = daemon_.Post("/api/show", R"({"model":"demo","check":true})").body;
  const std::string name = std::filesystem::path(blob).filename();
  EXPECT_THAT(checked, HasSubstr(R"("check":{"loads":false,"error":")" + name + ": truncated\""));
}

// With keys an admin sees where the files of the store are, as everybody does without.
TEST_F(ErrorPaths, OfAModelThatIsShown) {
  const std::string blob = daemon_.store().Blob("GGUF weights").string();
  EXPECT_THAT(Show(), HasSubstr(blob));
  const auto keys = KeyRing::Parse(
      "alice inference sha256:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90\n"  // "alice"
      "root admin sha256:4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2\n");     // "root"
  ASSERT_TRUE(keys) << keys.error().message;
  daemon_.OnIoThread([&] { daemon_.server().SetKeys(*keys); });
  for (const bool admin : {false, true}) {
    const std::string key = std::string("Authorization: Bearer ") + (admin ? "root" : "alice") + "\r\n";
    const std::string show = daemon_.Post("/api/show", R"({"model":"demo"})", key).body;
    const std::string props = daemon_.Get("/props?model=demo", key).body;
    for (const std::string& body : {show, props}) {
      EXPECT_THAT(body, HasSubstr(std::filesystem::path(blob).filename().string()));
      EXPECT_EQ(body.find(daemon_.store().directory().string()) != std::string::npos, admin) << body;
    }
  }
}

}  // namespace
}  // namespace quire::server
