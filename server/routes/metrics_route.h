// GET /metrics.
#pragma once

#include "server/http/router.h"
#include "server/http/server.h"
#include "server/routes/metrics.h"

namespace quire::server {

// What requests are doing now, from their log lines so far. The runners are left out.
MetricsSnapshot SnapshotOf(const HttpServer& server);

// `snapshot`: returns the current state of the daemon.
void AddMetricsRoutes(Router& router, const Metrics& metrics, std::function<MetricsSnapshot()> snapshot);

}  // namespace quire::server
