#include "server/models.h"

#include <utility>

#include "api/model_name.h"
#include "server/blocking.h"

namespace quire::server {

Models::Models(ModelStore store, boost::asio::thread_pool& pool) : store_(std::move(store)), pool_(pool) {}

Awaitable<api::Result<StoredModel>> Models::Find(std::string name) {
  auto parsed = api::ParseModelName(name);
  if (!parsed) co_return std::unexpected(std::move(parsed.error()));
  auto find = [this, wanted = *std::move(parsed)] { return store_.Find(wanted); };
  auto found = co_await RunBlocking(pool_, std::move(find));
  co_return found;
}

Awaitable<api::Result<std::vector<StoredModel>>> Models::List() {
  auto list = [this] { return store_.List(); };
  auto listed = co_await RunBlocking(pool_, std::move(list));
  co_return listed;
}

}  // namespace quire::server
