// The small model that comes with Quire, so that a fresh installation can chat at once.
#pragma once

#include <filesystem>
#include <optional>

#include "api/base/error.h"
#include "server/store/model_store.h"

namespace quire::server {

// Registers MODELS_DIR/quire-demo-F16.gguf as "quire-demo:latest" the first time it is called for a store. A
// file .quire-bundled in the store's root then says so: a model the user deletes stays deleted, one the user
// put under that name stays as it is.
api::Result<void> RegisterBundled(ModelStore& store, const std::filesystem::path& models_dir);

// Where the bundled models are: the source tree of a build whose programs are in BUILD/.../bin, else
// /usr/share/quire/models. Nothing when neither holds them.
std::optional<std::filesystem::path> FindBundledModels(const std::filesystem::path& executable_dir);

// The weights of quire-demo in a folder that FindBundledModels() gave.
std::filesystem::path BundledWeights(const std::filesystem::path& models_dir);

}  // namespace quire::server
