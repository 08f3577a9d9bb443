// GET /metrics.
#pragma once

#include "server/http/router.h"
#include "server/http/server.h"
#include "server/routes/metrics.h"
#include "server/routes/prefill_estimates.h"

namespace quire::server {

// The state of current requests, from their log lines so far. Runners are not included.
MetricsSnapshot SnapshotOf(const HttpServer& server, const PrefillEstimates& estimates,
                           std::chrono::steady_clock::time_point now);

// `snapshot`: returns the current state of the daemon. The route requires the role admin: counters of all
// clients together tell one client about the others.
void AddMetricsRoutes(Router& router, const Metrics& metrics, std::function<MetricsSnapshot()> snapshot);

}  // namespace quire::server
