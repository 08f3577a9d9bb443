// What the daemon's options mean for its parts.
#pragma once

#include <cstdint>
#include <memory>

#include "scheduler/dispatcher.h"
#include "server/http/transport.h"
#include "server/memory_budget.h"
#include "server/options.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

// Raises the limit of open files where it is too low for the connections, and limits these where it cannot.
// What requests and answers hold is bounded by `reserve_bytes` of memory, too (MemoryBudget).
TransportLimits TransportLimitsOf(const Options& options, int64_t reserve_bytes);

// `memory`: of all models together, and the reserve, of which frames on their way to one runner take a
// quarter at most. `snapshots` may be null.
scheduler::Limits SchedulerLimitsOf(const Options& options, const MemoryBudget& memory,
                                    std::shared_ptr<SnapshotService> snapshots);

}  // namespace quire::server
