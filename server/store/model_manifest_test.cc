#include "server/store/model_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/base/sha256.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kHex(64, 'a');

std::string ManifestText(const std::string& digest, const std::string& size = "1") {
  return R"({"schemaVersion":2,"config":{"mediaType":"c","digest":"sha256:)" + kHex +
         R"(","size":1},"layers":[{"mediaType":"m","digest":")" + digest + R"(","size":)" + size + "}]}";
}

TEST(Sha256, AgreesWithTheStandard) {
  EXPECT_EQ(api::Sha256Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(api::Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  api::Sha256 hash;
  hash.Update("a");
  hash.Update("bc");
  EXPECT_EQ(hash.Finish(), api::Sha256Of("abc"));
}

TEST(BlobNameOf, TakesDigestsOnly) {
  EXPECT_EQ(BlobNameOf("sha256:" + kHex), "sha256-" + kHex);
  EXPECT_EQ(BlobNameOf("sha256-" + kHex), "sha256-" + kHex);
  for (const std::string& bad :
       {std::string(), "sha256:" + std::string(63, 'a'), "sha256:" + std::string(65, 'a'),
        "sha256:" + std::string(64, 'A'), "sha256:" + std::string(64, 'g'), "sha256/" + kHex,
        "SHA256:" + kHex, "sha512:" + kHex, kHex, "sha256:" + std::string(61, 'a') + "/..",
        "sha256:../../" + std::string(58, 'a'), "sha256:" + std::string(63, 'a') + '\0',
        "sha256:" + kHex + "\n", "sha256:%2e%2e" + std::string(58, 'a')}) {
    EXPECT_EQ(BlobNameOf(bad), std::nullopt) << bad;
  }
}

TEST(Manifest, ComesBackAsItWasWritten) {
  Manifest manifest;
  manifest.config = {.media_type = "", .blob = "sha256-" + kHex, .size = 7};
  manifest.layers = {
      {.media_type = std::string(kModelLayer), .blob = "sha256-" + std::string(64, 'b'), .size = 100}};
  const std::string text = WriteManifest(manifest);
  EXPECT_EQ(nlohmann::json::parse(text).at("config").at("mediaType"),
            "application/vnd.docker.container.image.v1+json");
  EXPECT_EQ(nlohmann::json::parse(text).at("layers")[0].at("digest"), "sha256:" + std::string(64, 'b'));
  const auto read = ParseManifest(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->config.blob, manifest.config.blob);
  ASSERT_NE(read->Find(kModelLayer), nullptr);
  EXPECT_EQ(read->Find(kModelLayer)->blob, manifest.layers[0].blob);
  EXPECT_EQ(read->Find(kTemplateLayer), nullptr);
  EXPECT_EQ(read->TotalSize(), 107);
}

TEST(Manifest, RefusesWhatIsNone) {
  EXPECT_TRUE(ParseManifest(ManifestText("sha256:" + kHex)));
  const auto refused = [](const std::string& text) {
    const auto manifest = ParseManifest(text);
    EXPECT_FALSE(manifest) << text;
    if (manifest) return std::string();
    EXPECT_EQ(manifest.error().code, api::ErrorCode::kBadModel);
    return manifest.error().message;
  };
  refused("");
  refused("[]");
  refused("{}");
  refused(R"({"schemaVersion":2})");
  refused(R"({"schemaVersion":2,"config":{},"layers":[]})");
  refused(R"({"schemaVersion":2,"config":[],"layers":{}})");
  refused(std::string(100'000, '['));
  EXPECT_THAT(refused(ManifestText("sha256:../../../../etc/passwd")), HasSubstr("SHA-256"));
  refused(ManifestText("sha256:" + kHex, "-1"));
  refused(ManifestText("sha256:" + kHex, "1.5"));
  refused(ManifestText("sha256:" + kHex, "\"1\""));
  refused(ManifestText("sha256:" + kHex, "1e300"));
  EXPECT_THAT(refused(ManifestText("sha256:" + kHex, "9223372036854775807")), HasSubstr("2^63"));
  std::string v1 = ManifestText("sha256:" + kHex);
  v1.replace(v1.find(":2,"), 3, ":1,");
  EXPECT_THAT(refused(v1), HasSubstr("schemaVersion is 1"));
}

TEST(ModelConfig, ReadsWhatOllamaWrites) {
  const auto details = ParseModelConfig(
      R"({"model_format":"gguf","model_family":"llama","model_families":null,"model_type":"8.0B","file_type":"Q4_0"})");
  ASSERT_TRUE(details);
  EXPECT_EQ(details->family, "llama");
  EXPECT_TRUE(details->families.empty());
  EXPECT_EQ(details->parameter_size, "8.0B");
  EXPECT_EQ(details->quantization_level, "Q4_0");
  EXPECT_FALSE(ParseModelConfig(R"({"model_families":[1]})"));
  EXPECT_FALSE(ParseModelConfig(R"({"model_family":1})"));
  EXPECT_FALSE(ParseModelConfig("nonsense"));
}

TEST(Messages, ReadsRolesAndContents) {
  const auto messages =
      ParseMessages(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}])");
  ASSERT_TRUE(messages);
  ASSERT_EQ(messages->size(), 2U);
  EXPECT_EQ((*messages)[1].role, "assistant");
  EXPECT_EQ((*messages)[1].content, "hello");
  EXPECT_TRUE(ParseMessages("null")->empty());
  for (const char* bad : {"", "{}", "[1]", R"([{"role":1}])"}) EXPECT_FALSE(ParseMessages(bad)) << bad;
}

TEST(Parameters, ReadsOptions) {
  const auto options =
      ParseParameters(R"({"temperature":0.3,"min_p":0.15,"stop":["<|end|>","x"],"num_ctx":4096})");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->temperature, 0.3F);
  EXPECT_EQ(options->min_p, 0.15F);
  EXPECT_EQ(options->num_ctx, 4096);
  EXPECT_THAT(*options->stop, ElementsAre("<|end|>", "x"));
  EXPECT_EQ(options->top_k, std::nullopt);
  for (const char* bad : {"", "[]", R"({"temperature":"hot"})", R"({"stop":[1]})", R"({"num_ctx":1e99})"}) {
    EXPECT_FALSE(ParseParameters(bad)) << bad;
  }
}

}  // namespace
}  // namespace quire::server
