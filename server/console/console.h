// The console: a page for browsers at /ui/, and GET /quire/now, which it reads.
#pragma once

#include "server/console/now.h"
#include "server/http/router.h"

namespace quire::server {

// /ui/...: the page's files. They hold no data and need no key; the page asks for one.
void AddConsoleRoutes(Router& router);

// /quire/now: one NowReply, or, for Accept: text/event-stream, one at each change. `sources` outlives the router.
void AddNowRoutes(Router& router, const NowSources& sources);

}  // namespace quire::server
