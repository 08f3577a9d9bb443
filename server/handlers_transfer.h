// Models from and to registries: /api/pull, /api/push.
#pragma once

#include "server/registry/transfer.h"
#include "server/router.h"

namespace quire::server {

// `transfers` outlives the router.
void AddTransferRoutes(Router& router, registry::Transfers& transfers);

}  // namespace quire::server
