// /api/create: a model made of another, or of a GGUF file that was sent as a blob.
#pragma once

#include "server/routes/handlers.h"

namespace quire::server {

Awaitable<void> Create(Services& services, Exchange& exchange);

}  // namespace quire::server
