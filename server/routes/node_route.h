// GET /quire/node: what `quire fleet status` reads of this daemon: load, models, prefixes. The route
// requires the role admin, as /metrics does. docs/fleet.md describes the fields.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/http/router.h"
#include "server/routes/async_model_store.h"
#include "server/routes/metrics.h"

namespace quire::server {

std::string EncodeNode(const MetricsSnapshot& snapshot, const std::vector<std::string>& stored);

// `models` outlives the server.
void AddNodeRoutes(Router& router, AsyncModelStore& models, std::function<MetricsSnapshot()> snapshot);

}  // namespace quire::server
