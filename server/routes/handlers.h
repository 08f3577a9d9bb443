// The routes of the daemon.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "api/base/model_name.h"
#include "scheduler/backend.h"
#include "server/http/awaitable.h"
#include "server/http/router.h"
#include "server/routes/async_model_store.h"
#include "server/routes/executor.h"
#include "server/routes/inspector.h"
#include "server/routes/progress_stream.h"
#include "server/routes/relay.h"
#include "server/routes/slot_prefix.h"

namespace quire::server {

class VectorCache;

// The dependencies of handlers; all of them outlive the server.
struct Services {
  scheduler::Backend& backend;
  AsyncModelStore& models;
  Inspector& inspector;
  WorkPools& pools;
  std::function<bool()> draining;
  // Gets a model from its registry into the store, for a party. Empty: there are no registries.
  std::function<Awaitable<api::Result<void>>(api::ModelName name, fair::PartyId party,
                                             ProgressStream& progress)>
      fetch = {};
  VectorCache* vectors = nullptr;  // null: every text is computed
  SlotFiles slot_files = {};
};

// /api/generate, /api/chat
void AddOllamaRoutes(Router& router, Services& services);
// /api/tags, /api/ps, /api/show, /api/version
void AddOllamaListRoutes(Router& router, Services& services);
// /api/copy, /api/delete, /api/blobs/{digest}
void AddStoreRoutes(Router& router, Services& services);
// /v1/chat/completions, /v1/completions, /v1/fim/completions, /v2/chat, /v1/models, /models, /v1/models/{id}
void AddOpenAiRoutes(Router& router, Services& services);
// /v1/responses
void AddResponsesRoutes(Router& router, Services& services);
// llama.cpp's /tokenize, /detokenize, /apply-template, /props, /slots
void AddTokenizeRoutes(Router& router, Services& services);
// llama.cpp's /completion, /completions, /infill, /chat/completions, /responses, /slots/{id}
void AddLlamaServerRoutes(Router& router, Services& services);
// /v1/messages, /v1/messages/count_tokens
void AddAnthropicRoutes(Router& router, Services& services);
// /api/embed, /api/embeddings, /v1/embeddings, /v1/embed, /v2/embed, /embed, /embedding, /embeddings; POST /
void AddEmbeddingRoutes(Router& router, Services& services);
// /, /health, /livez, /readyz, /openapi.json
void AddHealthRoutes(Router& router, Services& services);

// All of them.
void AddRoutes(Router& router, Services& services);

// Names of options that the request gave and no table knows.
void LogUnknownOptions(const Exchange& exchange, const std::vector<std::string>& names);

// Who presents which credential, as api::Client has it.
std::string TenantOf(const HttpRequest& request);
// Sets all but the salt.
void SetClient(Exchange& exchange, api::Client& client);
// Its client may unload a model that others use: an admin's key or, without keys, whoever is on this machine.
bool MayUnloadForAll(Exchange& exchange);
// What its client may claim: with keys only an admin's pins hold against other clients; without, nobody's.
std::optional<scheduler::KeepAliveClaim> ClaimOf(Exchange& exchange,
                                                 std::optional<scheduler::KeepAlive> keep_alive);

// Bytes of a body that names a model and says little more.
inline constexpr uint64_t kNameBodyBytesMax = uint64_t{64} << 10;

// A larger body would hold other clients up while it is parsed: it is parsed on a pool.
inline constexpr size_t kLargeBodyBytes = size_t{128} << 10;

}  // namespace quire::server
