// Bodies that are stored while they come: pieces are written together, since each write is a job for another
// thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "server/http/awaitable.h"
#include "server/http/exchange.h"

namespace quire::server {

// How many bytes of the body are to be written together: where there is no room for many among all bodies, a
// few.
size_t ReserveGathered(Exchange& exchange);
// As many of the body, fewer at its end, where it is empty at last. Nothing: as Exchange::ReadBody().
Awaitable<std::optional<std::string>> Gather(Exchange& exchange, size_t bytes);

}  // namespace quire::server
