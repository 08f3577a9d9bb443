// A model store in a temporary directory, written by hand as Ollama writes one.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/store/model_store.h"

namespace quire::server::testing {

// Makes the directories above it.
void WriteFile(const std::filesystem::path& path, std::string_view bytes);
std::string ReadFile(const std::filesystem::path& path);

// Makes a file look as if nothing had changed it for an hour, so that what was read of it is kept in memory.
void Age(const std::filesystem::path& path);

api::ModelName Named(const std::string& model, const std::string& tag = "latest");

// A directory that is gone with the test; models/ in it is the store.
class StoreFixture {
 public:
  StoreFixture();
  StoreFixture(const StoreFixture&) = delete;
  StoreFixture& operator=(const StoreFixture&) = delete;
  ~StoreFixture();

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path root() const { return directory_ / "models"; }
  std::filesystem::path Blob(std::string_view content) const;
  std::filesystem::path ManifestPath(const std::string& model, const std::string& tag = "latest") const;

  // Writes the blob and gives its layer.
  nlohmann::json Layer(const std::string& media_type, std::string_view content) const;
  // A manifest of these layers with a config as Ollama's.
  nlohmann::json Manifest(const nlohmann::json& layers) const;
  // One of weights only.
  nlohmann::json PlainManifest(std::string_view weights = "GGUF weights") const;
  void AddPlain(const std::string& model, const std::string& tag = "latest") const;

  ModelStore Open() const;
  // Something to register: a file of these bytes under this name. No bytes, no file.
  NewModel New(const std::string& model, std::string_view weights = "GGUF new weights") const;

 private:
  std::filesystem::path directory_;
};

}  // namespace quire::server::testing
