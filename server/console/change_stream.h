// A stream of server-sent events that looks for changes while its client is there.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "api/base/fair/quota.h"
#include "server/http/awaitable.h"
#include "server/http/exchange.h"

namespace quire::server {

// What a stream shows. Lives in its handler.
class ChangeSource {
 public:
  virtual ~ChangeSource() = default;
  // The data of the next event; nothing: it is as it was.
  virtual Awaitable<std::optional<std::string>> Next() = 0;
};

// A route's open streams of one party: it neither holds all connections with them, nor makes the daemon look
// for changes without end. Counts also those whose page is closed, until their next write, some seconds
// later: a person may open many pages in turn.
inline constexpr fair::QuotaLimits kStreamLimits = {.party = 64};

// One event at each change, at most two a second, and a comment after every 10 s without one, until the
// client is gone or `draining` says so. 429 where the party has too many open streams.
Awaitable<void> StreamChanges(Exchange& exchange, ChangeSource& source, std::function<bool()> draining,
                              fair::Quota& streams);

}  // namespace quire::server
