// ModelStore: names given and taken away, and blobs that come in.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "api/base/sha256.h"
#include "server/store/garbage.h"
#include "server/store/layout.h"
#include "server/store/model_manifest.h"
#include "server/store/model_store.h"

namespace quire::server {
namespace {

constexpr auto kUnnamedAgeMax = std::chrono::hours(24 * 7);

// The root with the store's lock held.
struct LockedRoot {
  StoreDirectory root;
  api::FileDescriptor lock;
};

api::Result<LockedRoot> LockRoot(const std::filesystem::path& path) {
  auto root = StoreDirectory::OpenRoot(path);
  if (!root) return std::unexpected(root.error());
  auto lock = root->Lock(kLockFile);
  if (!lock) return std::unexpected(lock.error());
  return LockedRoot{std::move(*root), std::move(*lock)};
}

// The directories of a name that has no tag left; the first that is not empty ends it.
void RemoveEmptyDirectories(const StoreDirectory& root, const api::ModelName& name) {
  const std::array<const std::string*, 3> parts = {&name.host, &name.name_space, &name.model};
  for (size_t depth = parts.size(); depth > 0; --depth) {
    auto above = root.Enter(kManifests);
    for (size_t i = 0; above && i + 1 < depth; ++i) above = above->Enter(*parts[i]);
    if (!above || !above->RemoveDirectory(*parts[depth - 1])) return;
  }
}

// Whether a model of the store has this manifest.
bool IsNamed(const StoreDirectory& root, const std::string& manifest) {
  return std::ranges::any_of(StoredNames(root), [&](const api::ModelName& name) {
    const auto tags = EnterModel(root, name, false);
    const auto text = tags ? tags->Read(name.tag, kManifestBytesMax) : std::unexpected(tags.error());
    return text && *text == manifest;
  });
}

}  // namespace

api::Result<void> ModelStore::Copy(const api::ModelName& from, const api::ModelName& to) {
  for (const api::ModelName* name : {&from, &to}) {
    if (auto checked = CheckName(*name); !checked) return checked;
  }
  const auto locked = LockRoot(root_);
  if (!locked) return std::unexpected(locked.error());
  const StoreDirectory& root = locked->root;
  const auto source = StoredNameOf(root, from);
  if (!source) return ModelNotFound(from);
  const auto source_tags = EnterModel(root, *source, false);
  if (!source_tags) return std::unexpected(source_tags.error());
  const auto text = source_tags->Read(source->tag, kManifestBytesMax);
  if (!text) return std::unexpected(text.error());
  const api::ModelName target = StoredNameOf(root, to).value_or(to);
  const auto tags = EnterModel(root, target, true);
  if (!tags) return std::unexpected(tags.error());
  return ReplaceManifest(root, target, *tags, *text, *users_);
}

api::Result<DeletedModel> ModelStore::Delete(const api::ModelName& name) {
  if (auto checked = CheckName(name); !checked) return std::unexpected(checked.error());
  const auto locked = LockRoot(root_);
  if (!locked) return std::unexpected(locked.error());
  const StoreDirectory& root = locked->root;
  const auto stored = StoredNameOf(root, name);
  if (!stored) return ModelNotFound(name);
  const auto tags = EnterModel(root, *stored, false);
  if (!tags) return std::unexpected(tags.error());
  const auto text = tags->Read(stored->tag, kManifestBytesMax);
  if (auto removed = tags->Remove(stored->tag); !removed) return std::unexpected(removed.error());
  RemoveEmptyDirectories(root, *stored);
  if (!text) return DeletedModel{};
  if (const auto manifest = ParseManifest(*text)) RemoveUnusedBlobs(root, BlobsOf(*manifest), *users_);
  return DeletedModel{.digest = api::Sha256Of(*text), .shared = IsNamed(root, *text)};
}

void ModelStore::RemoveUnnamed(const std::vector<std::string>& blobs) const {
  const auto locked = LockRoot(root_);
  if (locked) {
    RemoveUnusedBlobs(locked->root, {blobs.begin(), blobs.end()}, *users_);
  } else {
    spdlog::warn("skipping blob cleanup: {}", locked.error().message);
  }
}

void ModelStore::RemoveOldUnnamed() const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  const auto names = blobs ? blobs->List() : std::unexpected(blobs.error());
  if (!names) return;
  std::vector<std::string> old;
  for (const std::string& name : *names) {
    const auto status = blobs->Status(name);
    const bool blob = BlobNameOf(name) == name;
    if (blob && status && std::chrono::system_clock::now() - status->modified_at > kUnnamedAgeMax)
      old.push_back(name);
  }
  // Blobs without a single model: the manifests lie elsewhere, or are not there yet.
  if (const auto root = StoreDirectory::OpenRoot(root_); !root || StoredNames(*root).empty()) return;
  if (!old.empty()) RemoveUnnamed(old);
}

bool ModelStore::HasBlob(const std::string& blob) const {
  users_->AwaitRemoval();
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  return blobs && blobs->Status(blob);
}

int64_t ModelStore::BlobSize(const std::string& blob) const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  const auto status = blobs ? blobs->Status(blob) : std::unexpected(blobs.error());
  return status ? status->size : 0;
}

std::filesystem::path ModelStore::BlobPath(const std::string& blob) const { return root_ / kBlobs / blob; }

api::Result<BlobUpload> ModelStore::StartUpload() const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  return BlobUpload::Start(*blobs);
}

api::Result<void> ModelStore::FinishUpload(BlobUpload& upload, const std::string& blob) const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  users_->AwaitRemoval();
  return upload.Finish(*blobs, blob);
}

api::Result<Staging> ModelStore::MakeStaging() const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  return Staging::Make(*blobs);
}

api::Result<std::string> ModelStore::Adopt(const Staging& staging, const std::string& file,
                                           BlobUsers::Lease& lease) const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  const auto digest = staging.directory().Digest(file);
  if (!digest) return std::unexpected(digest.error());
  const std::string blob = "sha256-" + digest->sha256;
  lease.Add(blob);
  users_->AwaitRemoval();
  if (auto moved = staging.directory().Move(file, *blobs, blob); !moved)
    return std::unexpected(moved.error());
  return blob;
}

api::Result<void> ModelStore::Lend(const std::string& blob, const Staging& staging,
                                   const std::string& file) const {
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  return blobs->Link(blob, staging.directory(), file);
}

}  // namespace quire::server
