// /quire/prefixes: what the disk tier holds, for admins. Export and import, too.
#pragma once

#include <functional>
#include <memory>

#include "server/http/router.h"
#include "server/routes/upload_turns.h"
#include "server/routes/work_pools.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

struct PrefixSources {
  // kNotFound: prefixes are not kept on disk. kUnavailable: not now.
  std::function<api::Result<SnapshotService::Opened>()> open;
  WorkPools* pools = nullptr;
  std::shared_ptr<UploadTurns> uploads = std::make_shared<UploadTurns>();
};

// `sources` outlives the router.
void AddPrefixRoutes(Router& router, const PrefixSources& sources);

}  // namespace quire::server
