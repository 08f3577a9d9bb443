// The work that embedding and reranking routes share.
#pragma once

#include "api/base/error.h"
#include "api/openai/embedding.h"
#include "server/routes/handlers.h"

namespace quire::server {

// A vector for each input, in order; of a model that ranks, a score. Destroying the coroutine, as an error or
// a client that leaves does, ends the work. Errors, too: the exchange has no room for the reply
// (Exchange::ReserveAnswer), which has `more_bytes` beside its numbers.
Awaitable<api::Result<api::EmbedResult>> EmbedAll(Services& services, Exchange& exchange,
                                                  const SharedModel& model, const api::EmbedRequest& request,
                                                  size_t more_bytes = 0);

// /v1/rerank, /rerank, /v1/reranking, /reranking, /v2/rerank, /v1/score, /score
void AddRerankRoutes(Router& router, Services& services);

}  // namespace quire::server
