// Removal of blobs that no model uses after a change of the store. Blocks; any thread.
#pragma once

#include <set>
#include <string>

#include "api/base/error.h"
#include "api/base/model_name.h"
#include "server/store/blob_users.h"
#include "server/store/files.h"
#include "server/store/model_manifest.h"

namespace quire::server {

// All blobs that a manifest names.
std::set<std::string> BlobsOf(const Manifest& manifest);

// Takes away those of the candidates that no model uses and that no user needs; none while a directory or a
// manifest of the store cannot be read, for then nobody knows. What cannot be removed is logged and stays.
// REQUIRES: the store's lock is held.
void RemoveUnusedBlobs(const StoreDirectory& root, const std::set<std::string>& candidates, BlobUsers& users);

// Writes the manifest of `name`, whose tags are `tags`, and takes away what only the one before used. The
// same manifest again keeps its time of change. The names of all blobs, and this one, are on disk when it
// returns, also those that an earlier try has left and failed to sync. REQUIRES: the store's lock is held,
// and all blobs are there.
StoreResult<void> ReplaceManifest(const StoreDirectory& root, const api::ModelName& name,
                                  const StoreDirectory& tags, const std::string& text, BlobUsers& users);

}  // namespace quire::server
