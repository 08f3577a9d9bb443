// /api/create: a model made of another, or of a GGUF file that was sent as a blob.
#pragma once

#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/ollama/store.h"
#include "server/routes/handlers.h"
#include "server/routes/progress_stream.h"
#include "server/store/model_store.h"

namespace quire::server {

Awaitable<void> Create(Services& services, Exchange& exchange);

// The same for a request that was parsed, or made up, as far as its end: `progress` goes on. `more_layers`
// are kept with the model; `party` was promised their blobs, as those of the request's files (BlobUsers).
Awaitable<api::Result<void>> MakeModel(Services& services, api::ollama::CreateRequest request,
                                       fair::PartyId party, ProgressStream& progress,
                                       std::vector<Layer> more_layers = {});

}  // namespace quire::server
