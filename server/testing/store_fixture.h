// A model store in a temporary directory, written by hand as Ollama writes one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "server/model_store.h"
#include "server/sha256.h"

namespace quire::server::testing {

inline void WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(stream.flush()) << path;
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A directory that is gone with the test; models/ in it is the store.
class StoreFixture {
 public:
  StoreFixture() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire-store-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  StoreFixture(const StoreFixture&) = delete;
  StoreFixture& operator=(const StoreFixture&) = delete;
  ~StoreFixture() {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path root() const { return directory_ / "models"; }
  std::filesystem::path Blob(std::string_view content) const {
    return root() / "blobs" / ("sha256-" + Sha256Of(content));
  }
  std::filesystem::path ManifestPath(const std::string& model, const std::string& tag = "latest") const {
    return root() / "manifests/registry.ollama.ai/library" / model / tag;
  }

  // Writes the blob and gives its layer.
  nlohmann::json Layer(const std::string& media_type, std::string_view content) const {
    WriteFile(Blob(content), content);
    return {{"mediaType", media_type}, {"digest", "sha256:" + Sha256Of(content)}, {"size", content.size()}};
  }

  // A manifest with a config as Ollama's and these layers.
  nlohmann::json Manifest(const nlohmann::json& layers) const {
    const std::string config =
        R"({"model_format":"gguf","model_family":"llama","model_families":["llama"],"model_type":"8.0B",)"
        R"("file_type":"Q4_0","architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}})";
    return {{"schemaVersion", 2},
            {"mediaType", "application/vnd.docker.distribution.manifest.v2+json"},
            {"config", Layer("application/vnd.docker.container.image.v1+json", config)},
            {"layers", layers}};
  }

  // A model of weights only.
  nlohmann::json PlainManifest(std::string_view weights = "GGUF weights") const {
    return Manifest(nlohmann::json::array({Layer("application/vnd.ollama.image.model", weights)}));
  }
  void AddPlain(const std::string& model, const std::string& tag = "latest") const {
    WriteFile(ManifestPath(model, tag), PlainManifest().dump());
  }

  ModelStore Open() const {
    auto store = ModelStore::Open(root());
    EXPECT_TRUE(store) << store.error().message;
    return std::move(*store);
  }

  // Something to register: a file of these bytes under this name.
  NewModel New(const std::string& model, std::string_view weights = "GGUF new weights") const {
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

 private:
  std::filesystem::path directory_;
};

inline api::ModelName Named(const std::string& model, const std::string& tag = "latest") {
  api::ModelName name;
  name.model = model;
  name.tag = tag;
  return name;
}

}  // namespace quire::server::testing
