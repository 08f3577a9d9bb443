#include "server/testing/store_fixture.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "api/base/sha256.h"

namespace quire::server::testing {

namespace fs = std::filesystem;
using nlohmann::json;

void WriteFile(const fs::path& path, std::string_view bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(stream.flush()) << path;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void Age(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  timespec tick{};
  ::clock_getres(CLOCK_REALTIME_COARSE, &tick);
  std::this_thread::sleep_for(2 * std::chrono::nanoseconds(tick.tv_nsec));
}

api::ModelName Named(const std::string& model, const std::string& tag) {
  api::ModelName name;
  name.model = model;
  name.tag = tag;
  return name;
}

StoreFixture::StoreFixture() {
  std::string pattern = (fs::temp_directory_path() / "quire-store-XXXXXX").string();
  directory_ = ::mkdtemp(pattern.data());
}

StoreFixture::~StoreFixture() {
  std::error_code error;
  fs::remove_all(directory_, error);
}

fs::path StoreFixture::Blob(std::string_view content) const {
  return root() / "blobs" / ("sha256-" + api::Sha256Of(content));
}

fs::path StoreFixture::ManifestPath(const std::string& model, const std::string& tag) const {
  return root() / "manifests/registry.ollama.ai/library" / model / tag;
}

json StoreFixture::Layer(const std::string& media_type, std::string_view content) const {
  WriteFile(Blob(content), content);
  return {
      {"mediaType", media_type}, {"digest", "sha256:" + api::Sha256Of(content)}, {"size", content.size()}};
}

json StoreFixture::Manifest(const json& layers) const {
  const std::string config =
      R"({"model_format":"gguf","model_family":"llama","model_families":["llama"],"model_type":"8.0B",)"
      R"("file_type":"Q4_0","architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}})";
  return {{"schemaVersion", 2},
          {"mediaType", "application/vnd.docker.distribution.manifest.v2+json"},
          {"config", Layer("application/vnd.docker.container.image.v1+json", config)},
          {"layers", layers}};
}

json StoreFixture::PlainManifest(std::string_view weights) const {
  return Manifest(json::array({Layer("application/vnd.ollama.image.model", weights)}));
}

void StoreFixture::AddPlain(const std::string& model, const std::string& tag) const {
  WriteFile(ManifestPath(model, tag), PlainManifest().dump());
}

ModelStore StoreFixture::Open() const {
  auto store = ModelStore::Open(root());
  EXPECT_TRUE(store) << store.error().message;
  return std::move(*store);
}

NewModel StoreFixture::New(const std::string& model, std::string_view weights) const {
  NewModel made;
  made.name.model = model;
  made.gguf = directory_ / "source.gguf";
  made.details = {.format = "gguf",
                  .family = "lfm2",
                  .families = {"lfm2"},
                  .parameter_size = "5.3M",
                  .quantization_level = "F16"};
  if (!weights.empty()) WriteFile(made.gguf, weights);
  return made;
}

}  // namespace quire::server::testing
