// The snapshot tier that the settings describe.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "server/options.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

// Null: there is none. `machine`: in the topics of KV events.
std::shared_ptr<SnapshotService> SnapshotsOf(const Options& options, const std::filesystem::path& runner,
                                             const std::string& machine);

}  // namespace quire::server
