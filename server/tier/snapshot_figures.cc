#include "server/tier/snapshot_figures.h"

namespace quire::server {

void AddSnapshotFigures(const SnapshotService& service, MetricsSnapshot& snapshot) {
  if (const auto tier = service.stats()) {
    snapshot.tier = {.bytes = tier->bytes,
                     .budget_bytes = tier->budget_bytes,
                     .files = tier->files,
                     .written = tier->written,
                     .read = tier->read,
                     .evictions = tier->evictions,
                     .corrupt = tier->corrupt,
                     .failures = tier->failures,
                     .writing = tier->writing};
  }
  if (const auto redis = service.redis_stats()) {
    snapshot.redis = {.connected = redis->connected,
                      .lookups = redis->lookups,
                      .late = redis->late,
                      .read = redis->read,
                      .written = redis->written,
                      .dropped = redis->dropped,
                      .corrupt = redis->corrupt,
                      .failures = redis->failures};
  }
}

}  // namespace quire::server
