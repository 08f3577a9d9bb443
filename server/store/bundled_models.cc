#include "server/store/bundled_models.h"

#include <spdlog/spdlog.h>

#include <string>
#include <system_error>
#include <utility>

#include "server/store/files.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "quire-demo-F16.gguf";
constexpr const char* kDraft = "quire-demo-draft-Q8_0.gguf";
constexpr const char* kMarker = ".quire-bundled";
constexpr const char* kLicense = "LICENSE";
constexpr const char* kInstalled = "/usr/share/quire/models";
constexpr int64_t kLicenseBytesMax = int64_t{1} << 20;

// The license beside the models, or that of the source tree they are in; empty when there is neither.
std::string ReadLicense(const fs::path& models_dir) {
  for (const fs::path& directory : {models_dir, models_dir / ".." / ".."}) {
    const auto opened = StoreDirectory::OpenRoot(directory);
    if (!opened) continue;
    if (auto text = opened->Read(kLicense, kLicenseBytesMax)) return std::move(*text);
  }
  return {};
}

}  // namespace

api::Result<void> RegisterBundled(ModelStore& store, const fs::path& models_dir) {
  const auto root = StoreDirectory::OpenRoot(store.root());
  if (!root) return std::unexpected(root.error());
  if (root->Status(kMarker)) return {};

  NewModel model;
  model.name.model = "quire-demo";
  const auto stored = store.Find(model.name);
  if (!stored && stored.error().code == api::ErrorCode::kNotFound) {
    model.gguf = models_dir / kWeights;
    std::error_code ignored;
    if (fs::is_regular_file(models_dir / kDraft, ignored)) model.draft_gguf = models_dir / kDraft;
    model.details = {.format = "gguf",
                     .family = "lfm2",
                     .families = {"lfm2"},
                     .parameter_size = "5.3M",
                     .quantization_level = "F16"};
    model.parameters_json = R"({"temperature":0.3,"min_p":0.15})";
    if (std::string license = ReadLicense(models_dir); !license.empty())
      model.licenses = {std::move(license)};
    const auto registered = store.Register(model);
    if (!registered) return std::unexpected(registered.error());
    spdlog::info("registered model={} bundled=true", (*registered)->name.Display());
  }
  return root->Mark(kMarker);
}

std::optional<fs::path> FindBundledModels(const fs::path& executable_dir) {
  const fs::path source_tree = executable_dir / ".." / ".." / ".." / "packaging" / "models";
  const fs::path beside = executable_dir / ".." / "share" / "quire" / "models";
  for (const fs::path& candidate : {source_tree, beside, fs::path(kInstalled)}) {
    std::error_code error;
    if (fs::is_regular_file(candidate / kWeights, error)) return candidate;
  }
  return std::nullopt;
}

std::filesystem::path BundledWeights(const std::filesystem::path& models_dir) {
  return models_dir / kWeights;
}

}  // namespace quire::server
