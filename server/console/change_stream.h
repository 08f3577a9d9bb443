// A stream of server-sent events that looks for changes while its client is there.
#pragma once

#include <functional>
#include <optional>
#include <string>

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

// One event at each change, at most two a second, and a comment after every 10 s without one, until the client is
// gone or `draining` says so.
Awaitable<void> StreamChanges(Exchange& exchange, ChangeSource& source, std::function<bool()> draining);

}  // namespace quire::server
