// The console: a page for browsers at /ui/, and GET /quire/now and /quire/cache/{model}, which it reads.
#pragma once

#include "server/console/cache_view.h"
#include "server/console/keys_view.h"
#include "server/console/now.h"
#include "server/http/router.h"

namespace quire::server {

// /ui/...: the page's files. They hold no data and need no key; the page asks for one.
void AddConsoleRoutes(Router& router);

// /quire/now: one NowReply, or, for Accept: text/event-stream, one at each change. `sources` outlives the
// router.
void AddNowRoutes(Router& router, const NowSources& sources);

// /quire/cache/{model}: likewise. `sources` outlives the router.
void AddCacheRoutes(Router& router, const CacheSources& sources);

// /quire/keys, for admins. `sources` outlives the router.
void AddKeyRoutes(Router& router, const KeySources& sources);

}  // namespace quire::server
