// /quire/prefixes: what the disk tier holds, for admins. Export and import, too.
#pragma once

#include <functional>

#include "server/http/router.h"
#include "server/routes/executor.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

struct PrefixSources {
  // kNotFound: prefixes are not kept on disk. kUnavailable: not now.
  std::function<api::Result<SnapshotService::Opened>()> open;
  WorkPools* pools = nullptr;
};

// `sources` outlives the router.
void AddPrefixRoutes(Router& router, const PrefixSources& sources);

}  // namespace quire::server
