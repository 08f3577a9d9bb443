// The daemon as a whole: everything wired together, run until a signal, ended in order.
#pragma once

#include <vector>

#include "server/http/router.h"
#include "server/options.h"

namespace quire::server {

// Resolves the options at the start and at each SIGHUP. Serves until SIGTERM or SIGINT, then lets running
// requests finish; a second signal ends at once. Returns the exit status: 0, or 1 when it could not start,
// with one line on stderr that says why.
int RunDaemon(const OptionTable& table);

// All routes of a daemon, for documents: without their handlers.
std::vector<Route> DaemonRoutes();

}  // namespace quire::server
