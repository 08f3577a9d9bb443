// Models from and to registries: /api/pull, /api/push.
#pragma once

#include <string>

#include "api/base/model_name.h"
#include "server/http/router.h"
#include "server/registry/transfer.h"
#include "server/routes/handlers.h"
#include "server/routes/progress_stream.h"

namespace quire::server {

// `services` and `transfers` outlive the router.
void AddTransferRoutes(Router& router, Services& services, registry::Transfers& transfers);

// Pulls a model for a request that needs it, whose client hears of it. As a pull it ends with its client.
Awaitable<api::Result<void>> FetchModel(Services& services, registry::Transfers& transfers,
                                        api::ModelName name, fair::PartyId party, ProgressStream& progress);

}  // namespace quire::server
