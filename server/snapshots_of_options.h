// The snapshot tier that the settings describe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "server/options.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

// Null: there is none. `reserve_bytes`: memory of this process; 0: not known.
std::shared_ptr<SnapshotService> SnapshotsOf(const Options& options, const std::filesystem::path& runner,
                                             int64_t reserve_bytes);

// At the end of the process, which a disk or a Redis that does not answer does not delay: then nothing else
// is waited for either.
void EndSnapshots(SnapshotService& snapshots);

}  // namespace quire::server
