// The prefixes that a model's caches hold, as GET /quire/cache/{model} shows them. I/O thread only.
//
// A client sees the prefixes of its own isolation key (its API key, or credential, and its cache_salt) with
// the first and last words of each. An admin, or anybody where there are no keys, sees the others' too,
// without any text. Nothing that anybody else sees depends on them: their number and bytes tell how much of a
// prompt was new.
#pragma once

#include <functional>
#include <string>

#include "api/base/fair/party.h"
#include "scheduler/dispatcher.h"
#include "server/console/now.h"
#include "server/http/awaitable.h"

namespace quire::server {

struct CacheSources {
  std::function<Awaitable<api::Result<scheduler::ModelSpec>>(std::string name, fair::PartyId party)>
      find_model;
  // Dispatcher::InspectCache
  std::function<Awaitable<api::Result<scheduler::CacheView>>(std::string key, api::ipc::InspectCache question,
                                                             int known_pid)>
      inspect;
  std::function<bool()> draining;  // the daemon ends: so do streams
};

// JSON; docs/api.md describes the fields. `view` null: the model is not loaded.
std::string EncodeCache(const std::string& model, const scheduler::CacheView* view);

}  // namespace quire::server
