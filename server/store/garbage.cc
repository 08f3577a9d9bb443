#include "server/store/garbage.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <set>

#include "server/store/layout.h"

namespace quire::server {
namespace {

// The blobs of all models; nothing when some manifest cannot be read, for then nobody knows.
std::optional<std::set<std::string>> BlobsInUse(const StoreDirectory& root) {
  std::set<std::string> blobs;
  const auto names = AllStoredNames(root);
  if (!names) return std::nullopt;
  for (const api::ModelName& name : *names) {
    const auto tags = EnterModel(root, name, false);
    const auto text = tags ? tags->Read(name.tag, kManifestBytesMax) : std::unexpected(tags.error());
    const auto manifest = text ? ParseManifest(*text) : std::unexpected(text.error());
    if (!manifest) {
      spdlog::warn("skipping blob cleanup: cannot read the manifest of {}: {}", name.Display(),
                   manifest.error().message);
      return std::nullopt;
    }
    blobs.merge(BlobsOf(*manifest));
  }
  return blobs;
}

}  // namespace

std::set<std::string> BlobsOf(const Manifest& manifest) {
  std::set<std::string> blobs = {manifest.config.blob};
  for (const Layer& layer : manifest.layers) blobs.insert(layer.blob);
  return blobs;
}

void RemoveUnusedBlobs(const StoreDirectory& root, const std::set<std::string>& candidates,
                       BlobUsers& users) {
  const auto used = BlobsInUse(root);
  const auto blobs = root.Enter(kBlobs);
  if (!used || !blobs) return;
  for (const std::string& blob : candidates) {
    if (used->contains(blob)) continue;
    users.Remove(blob, BlobUsers::Clock::now(), [&] {
      const auto removed = blobs->Remove(blob);
      if (!removed && removed.error().code != api::ErrorCode::kNotFound) {
        spdlog::warn("not removed: {}", removed.error().message);
      }
    });
  }
}

StoreResult<void> ReplaceManifest(const StoreDirectory& root, const api::ModelName& name,
                                  const StoreDirectory& tags, const std::string& text, BlobUsers& users) {
  const auto blobs = root.Enter(kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  if (auto synced = blobs->Sync(); !synced) return synced;
  const auto before = tags.Read(name.tag, kManifestBytesMax);
  if (before && *before == text) return tags.Sync();
  if (auto written = tags.Write(name.tag, text); !written) return written;
  if (!before) return {};
  if (const auto manifest = ParseManifest(*before)) RemoveUnusedBlobs(root, BlobsOf(*manifest), users);
  return {};
}

}  // namespace quire::server
