// Prefixes on disk and in Redis, for /metrics.
#pragma once

#include "server/routes/metrics.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

void AddSnapshotFigures(const SnapshotService& service, MetricsSnapshot& snapshot);

}  // namespace quire::server
