#include "server/models.h"

#include <utility>

#include "api/model_name.h"
#include "server/blocking.h"

namespace quire::server {

Models::Models(ModelStore store, boost::asio::thread_pool& pool) : store_(std::move(store)), pool_(pool) {}

Awaitable<api::Result<StoredModel>> Models::Find(std::string name) {
  auto parsed = api::ParseModelName(name);
  if (!parsed) co_return std::unexpected(std::move(parsed.error()));
  auto found =
      co_await RunBlocking(pool_, [this, wanted = *std::move(parsed)] { return store_.Find(wanted); });
  co_return found;
}

Awaitable<api::Result<std::vector<StoredModel>>> Models::List() {
  auto listed = co_await RunBlocking(pool_, [this] { return store_.List(); });
  co_return listed;
}

}  // namespace quire::server
