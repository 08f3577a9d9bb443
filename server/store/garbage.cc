#include "server/store/garbage.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <set>

#include "server/store/layout.h"

namespace quire::server {
namespace {

void AddBlobs(const Manifest& manifest, std::set<std::string>& blobs) {
  blobs.insert(manifest.config.blob);
  for (const Layer& layer : manifest.layers) blobs.insert(layer.blob);
}

// The blobs of all models; nothing when some manifest cannot be read, for then nobody knows.
std::optional<std::set<std::string>> BlobsInUse(const StoreDirectory& root) {
  std::set<std::string> blobs;
  for (const api::ModelName& name : StoredNames(root)) {
    const auto tags = EnterModel(root, name, false);
    const auto text = tags ? tags->Read(name.tag, kManifestBytesMax) : std::unexpected(tags.error());
    const auto manifest = text ? ParseManifest(*text) : std::unexpected(text.error());
    if (!manifest) {
      spdlog::warn("skipping blob cleanup: cannot read the manifest of {}: {}", name.Display(),
                   manifest.error().message);
      return std::nullopt;
    }
    AddBlobs(*manifest, blobs);
  }
  return blobs;
}

}  // namespace

void RemoveUnusedBlobs(const StoreDirectory& root, const Manifest& gone) {
  const auto used = BlobsInUse(root);
  const auto blobs = root.Enter(kBlobs);
  if (!used || !blobs) return;
  std::set<std::string> candidates;
  AddBlobs(gone, candidates);
  for (const std::string& blob : candidates) {
    if (used->contains(blob)) continue;
    const auto removed = blobs->Remove(blob);
    if (!removed && removed.error().code != api::ErrorCode::kNotFound) {
      spdlog::warn("not removed: {}", removed.error().message);
    }
  }
}

api::Result<void> ReplaceManifest(const StoreDirectory& root, const api::ModelName& name,
                                  const StoreDirectory& tags, const std::string& text) {
  const auto before = tags.Read(name.tag, kManifestBytesMax);
  if (before && *before == text) return {};
  if (auto written = tags.Write(name.tag, text); !written) return written;
  if (!before) return {};
  if (const auto manifest = ParseManifest(*before)) RemoveUnusedBlobs(root, *manifest);
  return {};
}

}  // namespace quire::server
