// GET /metrics.
#pragma once

#include "server/http/router.h"
#include "server/http/server.h"
#include "server/routes/metrics.h"

namespace quire::server {

// What requests are doing now, from their log lines so far. The runners are left out.
MetricsMoment MomentOf(const HttpServer& server);

// `moment`: the daemon as it is when asked.
void AddMetricsRoutes(Router& router, const Metrics& metrics, std::function<MetricsMoment()> moment);

}  // namespace quire::server
