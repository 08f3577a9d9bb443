// Lists of all models, which are the same for all clients: many who ask at once share one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "server/routes/blocking.h"
#include "server/routes/handlers.h"
#include "server/routes/shared_work.h"

namespace quire::server {

using SharedBody = SharedWork<api::Result<std::string>>;
std::shared_ptr<SharedBody> MakeSharedBody(SharedBody::Work encode);
Awaitable<void> SendShared(Exchange& exchange, SharedBody& shared);

// The party of what is done for all who ask.
inline fair::PartyId SharedParty() { return PartyOf({}, "all"); }

// The reply that lists all models, of which `entry_of` makes the entries; written on the pool when they are
// many.
template <class Entry>
Awaitable<api::Result<std::string>> EncodeModelList(
    Services& services, std::function<Awaitable<Entry>(const StoredModel&)> entry_of,
    std::string (*encode)(const std::vector<Entry>&)) {
  constexpr size_t kManyEntries = 32;
  const auto models = co_await services.models.List();
  if (!*models) co_return std::unexpected(models->error());
  std::vector<Entry> entries;
  for (const SharedModel& model : **models) {
    Entry entry = co_await entry_of(*model);
    entries.push_back(std::move(entry));
  }
  if (entries.size() <= kManyEntries) co_return encode(entries);
  auto work = [&entries, encode] { return encode(entries); };
  auto body = co_await RunBlocking(services.pools.cpu, std::move(work), SharedParty());
  co_return body;
}

}  // namespace quire::server
