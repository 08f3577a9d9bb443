// The part of a model store that registry transfers use, beside ModelStore. Blocks; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "api/base/model_name.h"
#include "server/registry/partial_blob.h"
#include "server/store/model_store.h"

namespace quire::server {

class StoreTransfer {
 public:
  // A store that was opened.
  explicit StoreTransfer(ModelStore store) : store_(std::move(store)), root_(store_.root()) {}

  // Takes away what nobody has written to for a week: partial blobs, and then blobs that no model names.
  void RemoveOldParts() const;
  void RemoveOldUnnamed() const { store_.RemoveOldUnnamed(); }
  // Takes away those of these blobs that no model names, and what there is of them.
  void RemoveUnnamed(const std::vector<std::string>& blobs) const;
  bool HasBlob(const Layer& layer) const;  // with the layer's size; as ModelStore's
  // A blob on its way into the store; nothing when somebody else brings it.
  StoreResult<std::optional<PartialBlob>> OpenPartial(const std::string& blob) const;
  // A blob to read. kBadModel when it has not the layer's size.
  api::Result<api::FileDescriptor> OpenBlob(const Layer& layer) const;
  // Bytes as a blob; the value is its name ("sha256-<64 hex>").
  api::Result<std::string> StoreBytes(std::string_view bytes) const;
  // The manifest of a model as it is stored. kNotFound `model 'x' not found`.
  api::Result<std::string> ReadManifest(const api::ModelName& name) const;
  // Gives a name to a manifest whose blobs are in the store. kNotFound names one that is not; kBadModel when
  // the manifest is broken. What only the name's former manifest used stays until its model is deleted.
  StoreResult<void> RegisterManifest(const api::ModelName& name, const std::string& text) const;

  BlobUsers& users() const { return store_.users(); }

 private:
  ModelStore store_;
  std::filesystem::path root_;
};

}  // namespace quire::server
