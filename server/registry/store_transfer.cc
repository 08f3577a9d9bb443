#include "server/registry/store_transfer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "api/base/sha256.h"
#include "server/store/garbage.h"
#include "server/store/layout.h"
#include "server/store/model_manifest.h"

namespace quire::server {

void StoreTransfer::RemoveOldParts() const {
  if (const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs)) PartialBlob::RemoveOld(*blobs);
}

void StoreTransfer::RemoveUnnamed(const std::vector<std::string>& blobs) const {
  if (const auto directory = StoreDirectory::OpenRoot(root_ / kBlobs)) {
    for (const std::string& blob : blobs) PartialBlob::RemoveUnused(*directory, blob);
  }
  store_.RemoveUnnamed(blobs);
}

bool StoreTransfer::HasBlob(const Layer& layer) const {
  users().AwaitRemoval();
  const auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return false;
  const auto status = blobs->Status(layer.blob);
  return status && status->size == layer.size;
}

StoreResult<std::optional<PartialBlob>> StoreTransfer::OpenPartial(const std::string& blob) const {
  auto blobs = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!blobs) return std::unexpected(blobs.error());
  return PartialBlob::Open(*std::move(blobs), blob);
}

api::Result<api::FileDescriptor> StoreTransfer::OpenBlob(const Layer& layer) const {
  if (!HasBlob(layer)) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{}: missing, or its size differs from the manifest", layer.blob));
  }
  const std::filesystem::path path = root_ / kBlobs / layer.blob;
  api::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() >= 0) return file;
  return api::Fail(api::ErrorCode::kInternal,
                   fmt::format("{}: {}", path.string(), std::generic_category().message(errno)));
}

api::Result<std::string> StoreTransfer::StoreBytes(std::string_view bytes) const {
  const std::string blob = "sha256-" + api::Sha256Of(bytes);
  auto upload = store_.StartUpload();
  if (!upload) return std::unexpected(upload.error());
  if (auto added = upload->Append(bytes); !added) return std::unexpected(added.error());
  if (auto finished = store_.FinishUpload(*upload, blob); !finished) return std::unexpected(finished.error());
  return blob;
}

api::Result<std::string> StoreTransfer::ReadManifest(const api::ModelName& name) const {
  if (auto checked = CheckName(name); !checked) return std::unexpected(checked.error());
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  const auto stored = StoredNameOf(*root, name);
  if (!stored) return ModelNotFound(name);
  const auto tags = EnterModel(*root, *stored, false);
  if (!tags) return std::unexpected(tags.error());
  return tags->Read(stored->tag, kManifestBytesMax);
}

StoreResult<void> StoreTransfer::RegisterManifest(const api::ModelName& name, const std::string& text) const {
  if (auto checked = CheckName(name); !checked) return std::unexpected(checked.error());
  const auto manifest = ParseManifest(text);
  if (!manifest) return std::unexpected(manifest.error());
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  const auto lock = root->Lock(kLockFile);
  if (!lock) return std::unexpected(lock.error());
  std::vector<Layer> layers = manifest->layers;
  layers.push_back(manifest->config);
  for (const Layer& layer : layers) {
    if (!HasBlob(layer)) {
      return api::Fail(api::ErrorCode::kNotFound, fmt::format("blob {} is not in the store", layer.blob));
    }
  }
  const api::ModelName target = StoredNameOf(*root, name).value_or(name);
  const auto tags = EnterModel(*root, target, true);
  if (!tags) return std::unexpected(tags.error());
  return ReplaceManifest(*root, target, *tags, text, users());
}

}  // namespace quire::server
