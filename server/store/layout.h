// Where things lie in a store of models, for the parts of ModelStore. Blocks; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "api/base/model_name.h"
#include "server/store/files.h"

namespace quire::server {

inline constexpr const char* kManifests = "manifests";
inline constexpr const char* kBlobs = "blobs";
inline constexpr const char* kLockFile = ".quire-lock";
inline constexpr int64_t kManifestBytesMax = int64_t{1} << 20;

// The parts are used as file names: they must be exactly what the rules for names allow.
api::Result<void> CheckName(const api::ModelName& name);

// kNotFound `model 'x' not found`.
std::unexpected<api::Error> ModelNotFound(const api::ModelName& name);

// manifests/HOST/NAMESPACE/MODEL, the directory of the tags.
StoreResult<StoreDirectory> EnterModel(const StoreDirectory& root, const api::ModelName& name, bool create);

// The names of all manifests; what is not four levels deep or not a name is no manifest.
std::vector<api::ModelName> StoredNames(const StoreDirectory& root);

// The same; nothing when a directory cannot be read.
std::optional<std::vector<api::ModelName>> AllStoredNames(const StoreDirectory& root);

// The name as it is stored: itself, or one that differs in case only; nothing when there is neither.
std::optional<api::ModelName> StoredNameOf(const StoreDirectory& root, const api::ModelName& name);

}  // namespace quire::server
